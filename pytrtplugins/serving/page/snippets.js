// What to write to ask the same of the server without this page.

import { predictPath } from "./server.js";

const NUMPY = {
  BOOL: "bool_", UINT8: "uint8", UINT16: "uint16", UINT32: "uint32", UINT64: "uint64", INT8: "int8", INT16: "int16",
  INT32: "int32", INT64: "int64", FP16: "float16", FP32: "float32", FP64: "float64", BYTES: "object_",
};

// Whether a model takes images and gives boxes, as its metadata says.
export function isDetector(metadata) {
  const outputs = metadata.outputs.map((each) => each.name);
  return metadata.inputs.length === 1 && metadata.inputs[0].name === "image" && ["boxes", "scores", "classes"].every((name) => outputs.includes(name));
}

export function curl(model, metadata, withKey) {
  const key = withKey ? ' \\\n-H "Authorization: Bearer $PYTRT_API_KEY"' : "";
  const body = isDetector(metadata) ? "-F image=@photo.jpg" : "--data-binary @request";
  return `curl ${body}${key} \\\n${location.origin}${predictPath(model)}`;
}

export function python(model, metadata, withKey) {
  const detector = isDetector(metadata);
  const given = [
    JSON.stringify(model.name),
    `[${metadata.inputs.map((_, index) => `input${index}`).join(", ")}]`,
    ...(model.version ? [`model_version=${JSON.stringify(model.version)}`] : []),
    ...(withKey ? ['headers={"Authorization": "Bearer " + os.environ["PYTRT_API_KEY"]}'] : []),
  ];
  const secure = location.protocol === "https:" ? ", ssl=True" : "";
  const lines = [
    ...(withKey ? ["import os", ""] : []),
    "import numpy as np",
    "import tritonclient.http as http",
    ...(detector ? ["from PIL import Image, ImageOps"] : []),
    "",
    `client = http.InferenceServerClient("${location.host}"${secure})`,
    ...(detector ? photo(metadata.inputs[0]) : metadata.inputs.flatMap(zeros)),
    `answer = client.infer(${given.join(", ")})`,
    ...metadata.outputs.map((each) => `print(answer.as_numpy(${JSON.stringify(each.name)}))`),
  ];
  return lines.join("\n");
}

function photo({ name, datatype }) {
  return [
    'photo = ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB")',
    "array = np.asarray(photo)",
    `input0 = http.InferInput(${JSON.stringify(name)}, array.shape, "${datatype}")`,
    "input0.set_data_from_numpy(array)",
  ];
}

function zeros({ name, datatype, shape }, index) {
  const dims = shape.map((dim) => (dim < 0 ? 1 : dim));
  return [
    `array = np.zeros([${dims.join(", ")}], np.${NUMPY[datatype] || "float32"})  # ${shape.map((dim) => (dim < 0 ? "any" : dim)).join(" x ") || "scalar"}`,
    `input${index} = http.InferInput(${JSON.stringify(name)}, array.shape, "${datatype}")`,
    `input${index}.set_data_from_numpy(array)`,
  ];
}
