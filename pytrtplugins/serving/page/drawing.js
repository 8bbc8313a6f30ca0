// An image on a canvas, with boxes and labels as pytrtplugins.vision.draw makes them.

const GOLDEN_RATIO = 0.618034;
const MOST_PIXELS = 2048; // of the canvas's longer side: phones refuse larger ones

// [red, green, blue] of a class, 0..255: the same as pytrtplugins.vision.class_color.
export function classColor(classId) {
  const hue = (0.02 + classId * GOLDEN_RATIO) % 1;
  const saturation = 0.85;
  const value = 0.95;
  const sector = Math.floor(hue * 6);
  const part = hue * 6 - sector;
  const p = value * (1 - saturation);
  const q = value * (1 - saturation * part);
  const t = value * (1 - saturation * (1 - part));
  const all = [[value, t, p], [q, value, p], [p, value, t], [p, q, value], [t, p, value], [value, p, q]];
  return all[sector % 6].map((share) => Math.round(255 * share));
}

export function css([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

// A picture that drawImage takes, upright or as it is stored, whichever has the size that the server saw; null if the browser cannot
// read the file.
export async function decode(file, width, height) {
  for (const imageOrientation of ["from-image", "none"]) {
    try {
      const bitmap = await createImageBitmap(file, { imageOrientation });
      if (!width || (bitmap.width === width && bitmap.height === height)) return bitmap;
      bitmap.close();
    } catch {
      return null;
    }
  }
  return createImageBitmap(file);
}

// Draws a picture (null: grey) of this size, and boxes in its pixels: [{label, class_id, score, box: [left, top, right, bottom]}].
export function draw(canvas, picture, width, height, detections) {
  const scale = Math.min(1, MOST_PIXELS / Math.max(width, height));
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d");
  if (picture) {
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  } else {
    context.fillStyle = "#888";
    context.fillRect(0, 0, canvas.width, canvas.height);
  }
  const side = Math.sqrt(canvas.width * canvas.height);
  const shrunk = canvas.width / (canvas.clientWidth || canvas.width); // pixels of the canvas in one of the screen
  const line = Math.max(2 * shrunk, side / 220);
  const size = Math.max(12 * shrunk, side / 32);
  const ordered = [...detections].sort((one, other) => one.score - other.score); // the highest score is on top
  for (const { class_id: classId, box } of ordered) {
    const [left, top, right, bottom] = box.map((value) => value * scale);
    context.strokeStyle = css(classColor(classId));
    context.lineWidth = line;
    context.strokeRect(left, top, Math.max(0, right - left), Math.max(0, bottom - top));
  }
  context.font = `600 ${size}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  for (const found of ordered) label(context, found, scale, size, line / 2);
}

// The corner of a label is the outer corner of its box, whose line is twice `half` wide.
function label(context, found, scale, size, half) {
  const color = classColor(found.class_id);
  const text = `${found.label} ${percent(found.score)}`;
  const [left, top] = found.box.map((value) => value * scale - half);
  const { width: canvasWidth, height: canvasHeight } = context.canvas;
  const wide = context.measureText(text).width + size * 0.6;
  const high = size * 1.4;
  const x = Math.min(Math.max(0, left), Math.max(0, canvasWidth - wide));
  const y = top >= high ? top - high : Math.min(Math.max(0, top), Math.max(0, canvasHeight - high)); // inside where there is no room
  context.fillStyle = css(color);
  context.fillRect(x, y, wide, high);
  context.fillStyle = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] > 140 ? "#000" : "#fff";
  context.fillText(text, x + size * 0.3, y + high / 2);
}

export function percent(score) {
  return `${Math.round(100 * score)}%`;
}
