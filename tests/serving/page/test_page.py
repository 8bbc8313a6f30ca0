"""The page in a real browser: Debian's Chromium, without a window."""

import base64
import io
import json
import re
import shutil
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

from pytrtplugins.serving import Limits
from pytrtplugins.serving.access.access import Access
from pytrtplugins.serving.access.keys import add_key
from pytrtplugins.vision import class_color
from tests.serving.conftest import spec
from tests.serving.running import running

pytestmark = [pytest.mark.slow]

CHROMIUM = shutil.which("chromium")
OPTIONS = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
SIZES = {"wide": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
WAIT_MS = 20_000
VERSIONS = [spec("several", "Double"), spec("several", "Lists", version="2")]
# what a drag from a folder, or the clipboard, brings to the page
GIVE = """([name, kind, type, data]) => {
  const transfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  transfer.items.add(new File([bytes], name, { type }));
  const event = kind === "drop" ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
    : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true });
  document.body.dispatchEvent(event);
}"""


@pytest.fixture(scope="module")
def address():
    models = [
        spec("finder", "Finder"),
        spec("double", "Double"),
        spec("lists", "Lists"),
        spec("painter", "Painter"),
        *VERSIONS,
    ]
    with running(models, Limits(body_bytes=1 << 20)) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if CHROMIUM is None:
        pytest.skip("apt-get install chromium")
    with playwright.sync_playwright() as library:
        opened = library.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield opened
        opened.close()


@pytest.fixture(params=["wide"])
def page(browser, address, request):
    """The page, once it knows the models; at the end, nothing was asked of others, nothing broke a policy, and nothing failed."""
    context = browser.new_context(viewport=SIZES[request.param], permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(WAIT_MS)
    opened, problems, asked = context.new_page(), [], []
    opened.on(
        "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
    )
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda each: asked.append(each.url))
    opened.goto(address)
    opened.locator("#code:has-text('curl')").wait_for()
    opened.status = 200  # a browser itself reports others as errors
    yield opened
    context.close()
    assert not [each for each in problems if f"responded with a status of {opened.status} " not in each]
    assert all(url.startswith((f"{address}/", f"blob:{address}/")) for url in asked)


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)


def encoded(image, form="PNG", **options):
    pil, file = pytest.importorskip("PIL.Image"), io.BytesIO()
    pil.fromarray(image).save(file, format=form, **options)
    return file.getvalue()


def give(page, data, kind="drop", name="a.png", type="image/png"):
    page.evaluate(GIVE, [name, kind, type, base64.b64encode(data).decode()])


def rows(page):
    """The list of objects: label, percent, box."""
    page.locator("#objects tr").first.wait_for()
    return [each.inner_text().split("\t") for each in page.locator("#objects tr").all()]


def detected(address, data):
    """What the server answers, in the form of the list."""
    with urllib.request.urlopen(urllib.request.Request(f"{address}/v1/detect", data), timeout=20) as answer:
        found = json.loads(answer.read())["detections"]
    return [
        [each["label"], f"{100 * each['score']:.0f}%", ", ".join(f"{value + 1e-9:.0f}" for value in each["box"])]
        for each in found
    ]


def pixels(page):
    """What the canvas shows: (H, W, 3)."""
    pil = pytest.importorskip("PIL.Image")
    url = page.evaluate("document.getElementById('canvas').toDataURL('image/png')")
    return np.asarray(pil.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))


@pytest.mark.parametrize("kind", ["drop", "paste"])
@pytest.mark.parametrize("page", SIZES, indirect=True)
def test_an_image_that_is_dropped_or_pasted_shows_the_boxes_that_the_server_found(page, address, image, kind):
    data = encoded(image)
    give(page, data, kind)
    assert rows(page) == detected(address, data)
    assert "3 objects: thing 0 90%" in page.locator("#canvas").get_attribute("aria-label")
    shown = pixels(page)
    assert shown.shape == image.shape
    assert np.array_equal(shown[-8:, -8:], image[-8:, -8:])  # no box is there
    for class_id in range(3):
        assert (shown == class_color(class_id)).all(axis=2).any()
    stages = page.locator("#times dt").all_inner_texts()
    assert stages == [
        *("network and browser", "upload", "preprocess", "queue", "compute", "postprocess", "between the stages")
    ]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing is cut off


def test_files_are_chosen_and_each_keeps_its_answer(page, address, image):
    page.status = 400
    images = [encoded(image), encoded(image[::-1].copy()), b"no image"]
    names = ["one.png", "two.png", "three.png"]
    types = ["image/png", "image/png", "image/png"]
    page.set_input_files(
        "#files",
        [
            {"name": name, "mimeType": kind, "buffer": data}
            for name, kind, data in zip(names, types, images, strict=True)
        ],
    )
    buttons = page.locator("#items button")
    buttons.nth(2).locator(".badge").wait_for()
    assert buttons.all_inner_texts() == ["one.png\n3", "two.png\n3", "three.png\nerror"]
    for index in (1, 0):
        buttons.nth(index).click()
        page.locator(f"#items li:nth-child({index + 1}) [aria-pressed=true]").wait_for()
        page.wait_for_timeout(100)
        assert rows(page) == detected(address, images[index])
    buttons.nth(2).click()
    assert "not an image" in page.get_by_role("alert").inner_text()


def test_the_threshold_hides_boxes(page, image):
    give(page, encoded(image))
    assert len(rows(page)) == 3
    page.get_by_label("Threshold", exact=True).fill("0.5")
    assert [each[0] for each in rows(page)] == ["thing 0", "thing 1"]
    assert page.locator("#count").inner_text() == "2 of 3"
    assert not (pixels(page) == class_color(2)).all(axis=2).any()
    page.get_by_label("Threshold", exact=True).press("End")
    assert rows(page) == [["None"]]
    assert np.array_equal(pixels(page), image)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_an_image_is_shown_upright_as_the_server_says(page, image, orientation):
    pil = pytest.importorskip("PIL.Image")
    exif = pil.Exif()
    exif[0x0112] = orientation
    flat = np.repeat(image[:, :1, :1], 3, axis=2).repeat(64, axis=1)  # rows of grey: JPEG keeps them
    data = encoded(flat, "JPEG", quality=100, exif=exif.tobytes())
    give(page, data, name="a.jpg", type="image/jpeg")
    rows(page)
    page.get_by_label("Threshold", exact=True).press("End")
    upright = np.asarray(pytest.importorskip("PIL.ImageOps").exif_transpose(pil.open(io.BytesIO(data))))
    assert pixels(page).shape == upright.shape
    assert np.abs(pixels(page).astype(int) - upright).mean() < 3


def test_a_model_that_is_no_detector_answers_in_text_and_its_error_is_shown(page):
    page.status = 418
    page.get_by_label("Model").select_option("double")
    page.get_by_label("Body of a request").fill("1 2")
    page.get_by_role("button", name="Send").click()
    page.locator("#answer:has-text('rows')").wait_for()
    assert json.loads(page.locator("#answer").inner_text())["rows"] == [[2, 4]]
    page.get_by_label("Body of a request").fill("teapot")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("no coffee").wait_for()
    assert page.get_by_role("alert").inner_text() == "Error 418. no coffee"


def test_an_answer_that_is_an_image_is_shown_and_other_bytes_can_be_saved(page, image):
    page.get_by_label("Model").select_option("painter")
    page.locator("#code:has-text('painter')").wait_for()
    give(page, encoded(image))
    page.locator("#times dt").first.wait_for()
    page.wait_for_timeout(100)
    assert np.array_equal(pixels(page), 255 - image)
    give(page, b"abc", name="a.bin", type="")
    page.get_by_text("3 bytes of application/x-negative").wait_for()
    with page.expect_download() as caught:
        page.get_by_role("link", name="Save the answer").click()
    with open(caught.value.path(), "rb") as file:
        assert file.read() == bytes(255 - each for each in b"abc")


def test_what_failed_is_tried_again_when_it_is_selected(page, image):
    page.status = 503
    failures = [503]

    def answer(route):
        if failures:
            route.fulfill(status=failures.pop(), headers={"Retry-After": "1"}, body='{"error": "no room."}')
        else:
            route.fallback()

    page.route("**:predict", answer)
    give(page, encoded(image))
    page.get_by_text("no room. Try again in 1 s.").wait_for()
    give(page, encoded(image))
    page.locator("#items .bad").click()
    page.locator("#items .bad").wait_for(state="detached")
    assert len(rows(page)) == 3


def test_a_camera_draws_frames_until_it_is_stopped_or_the_page_is_hidden(page):
    now, most = [], []  # requests in flight

    def begun(each):
        now.append(each.url)
        most.append(len(now))

    page.on("request", begun)
    page.on("requestfinished", lambda each: now.remove(each.url))
    page.get_by_role("button", name="Camera").click()
    page.get_by_text(re.compile(r"[3-9] answered, \d+ skipped")).wait_for()
    first = pixels(page)
    assert first.shape[1] >= 320
    assert len(rows(page)) == 3
    page.get_by_text(re.compile(r"[0-9]{2} answered")).wait_for()
    assert not np.array_equal(pixels(page), first)
    assert re.match(r"\d+\.\d frames/s", page.locator("#rate").inner_text())
    assert max(most) == 1
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Camera").click()
    page.get_by_text(re.compile(r"[3-9] answered")).wait_for()
    page.evaluate(  # a headless page is never hidden
        "Object.defineProperty(document, 'hidden', { get: () => true }); document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.get_by_text("Stopped, since the page was hidden.").wait_for()
    assert page.evaluate("document.getElementById('video').srcObject") is None


def test_a_video_is_played_to_its_end(page, tmp_path):
    cv2 = pytest.importorskip("cv2")
    writer = cv2.VideoWriter(str(tmp_path / "v.webm"), cv2.VideoWriter_fourcc(*"VP80"), 10, (64, 48))
    if not writer.isOpened():
        pytest.skip("OpenCV writes no VP8 here")
    for level in range(0, 250, 25):
        writer.write(np.full((48, 64, 3), level, np.uint8))
    writer.release()
    page.set_input_files("#files", str(tmp_path / "v.webm"))
    page.get_by_role("button", name="Stop").wait_for()
    page.get_by_role("button", name="Camera").wait_for()  # it has ended
    assert pixels(page).shape == (48, 64, 3)
    assert len(rows(page)) == 3


def test_the_python_that_it_shows_runs(page, image, tmp_path):
    pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
    (tmp_path / "photo.jpg").write_bytes(encoded(image, "JPEG"))
    for label, address, said in (
        ("finder", "/finder:", "0.9"),
        ("lists", "/lists:", "0"),
        ("several, version 1", "/several/versions/1:", "[[0. 0.]]"),
    ):
        page.get_by_label("Model").select_option(label)
        page.locator(f"#code:has-text('{address}')").wait_for()
        page.get_by_role("tab", name="Python").click()
        page.get_by_role("button", name="Copy").click()
        page.get_by_role("button", name="Copied").wait_for()
        code = page.evaluate("navigator.clipboard.readText()")
        assert code == page.locator("#code").inner_text()
        ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, said in ran.stdout) == (0, True), ran.stderr
        page.get_by_role("tab", name="curl").click()
        page.get_by_role("button", name="Copied").wait_for(state="detached")


def test_a_key_stays_in_the_tab_and_goes_with_requests(page, image):
    page.get_by_text("API key").click()
    page.get_by_label("Sent with each request").fill("secret")
    with page.expect_request("**/v2/repository/index") as caught:
        page.get_by_role("button", name="Use").click()
    assert caught.value.headers["authorization"] == "Bearer secret"
    page.locator("#code:has-text('$PYTRT_API_KEY')").wait_for()
    assert "secret" not in page.locator("#code").inner_text()
    assert page.evaluate("[localStorage.length, document.cookie, Object.values(sessionStorage)]") == [0, "", ["secret"]]


def test_a_server_with_keys_is_used_once_the_key_is_entered(browser, image, tmp_path):
    key = add_key(str(tmp_path / "keys.toml"), "visitor")
    access = Access(keys=str(tmp_path / "keys.toml"))
    with running([spec("finder", "Finder")], Limits(), access) as server:
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"http://127.0.0.1:{server.port}")
        page.get_by_text("Error 401.").wait_for()
        page.get_by_label("Sent with each request").fill(key)  # which is open now
        page.keyboard.press("Enter")
        page.locator("#code:has-text('finder')").wait_for()
        assert page.get_by_role("alert").count() == 0
        give(page, encoded(image))
        assert len(rows(page)) == 3
        page.close()


def test_everything_is_reached_by_the_tab_key_and_has_a_name(page, image):
    give(page, encoded(image))
    rows(page)
    reached = []
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName.toLowerCase()"))
    for each in ("model", "choose", "camera", "threshold", "tab-curl", "copy", "summary"):
        assert each in reached
    names = page.evaluate(
        "[...document.querySelectorAll('button, input, select, textarea')].map((each) => "
        "(each.labels && each.labels.length) || each.ariaLabel || each.textContent.trim() ? '' : each.outerHTML)"
    )
    assert not any(names)
