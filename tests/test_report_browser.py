"""The page in a browser: everything is there, and nothing sticks out, on a desk and on a phone."""

import json
import shutil

import pytest
from selenium import webdriver

import latentens
from tests.test_report import example_tree

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"deviceMetrics": {"width": 390, "height": 844, "pixelRatio": 3, "mobile": True, "touch": True}}

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return latentens.report(example_tree(), tmp_path_factory.mktemp("report")).parent


@pytest.fixture(params=["desk", "phone"])
def browser(request, folder, tmp_path):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    if request.param == "phone":
        options.add_experimental_option("mobileEmulation", PHONE)
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        driver.get((folder / "report.html").as_uri())
        yield driver
    finally:
        driver.quit()


OVERFLOWING = """
const width = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")]
  .filter(found => !found.parentElement.closest(".scroll") && found.getBoundingClientRect().right > width + 1)
  .map(found => found.outerHTML.slice(0, 200));
"""


def test_page_is_whole_fits_and_asks_for_nothing(browser, folder):
    page = (folder / "report.html").as_uri()
    images = browser.execute_script(
        "return [...document.images].map(image => [image.complete, image.naturalWidth, image.clientWidth, image.alt])"
    )
    assert len(images) == len(list(folder.glob("*.png")))
    assert all(complete and natural > 0 and shown > 250 and alt for complete, natural, shown, alt in images)
    browser.execute_script("document.querySelectorAll('details').forEach(found => found.open = true)")
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('.scroll > table')].map(table => [table.rows.length, table.clientHeight])"
    )
    assert len(sizes) >= 12
    assert all(rows > 1 and height > 40 for rows, height in sizes)
    assert browser.execute_script(OVERFLOWING) == []
    assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    sent = requests_of(browser, page)
    assert page in sent
    assert [url for url in sent if not url.startswith(("file:", "data:"))] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_tables_are_sorted_and_searched(browser):
    box = "const box = document.querySelector('#data-2-voters .scroll'), rows = [...box.querySelectorAll('tbody tr')];"
    order = box + "return rows.map(row => parseFloat(row.cells[2].innerText));"
    press = box + "box.querySelectorAll('thead th')[2].querySelector('button').click();"
    browser.execute_script(press)
    rising = browser.execute_script(order)
    assert rising == sorted(rising)
    browser.execute_script(press)
    assert browser.execute_script(order) == rising[::-1]
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


ROWS = """
return [...document.querySelector("#data-2-items .scroll").querySelectorAll("tbody tr")]
  .filter(row => row.getClientRects().length).map(row => row.innerText.replace(/\\s+/g, " "));
"""


def test_only_tables_that_do_not_fit_on_a_screen_have_a_search_box(browser):
    found = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(box => [box.querySelectorAll('tbody tr').length, "
        "box.previousElementSibling?.matches('input.search') ?? false])"
    )
    assert {searched for rows, searched in found if rows <= 20} == {False}
    assert {searched for rows, searched in found if rows > 20} == {True}


def test_tables_are_searched_by_typing(browser):
    rows = browser.execute_script(ROWS)
    field = browser.find_element("css selector", "#data-2-items input.search")
    name, percent = rows[3].split(")")[0], " ".join(rows[3].split(" ")[-2:])  # its space does not break
    for words in (name, percent, "No SUCH item"):
        field.clear()
        field.send_keys(words)
        expected = [row for row in rows if words.lower() in row.lower()]
        assert browser.execute_script(ROWS) == expected
        assert len(expected) < len(rows)
    field.clear()
    field.send_keys(" ")
    assert browser.execute_script(ROWS) == rows
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_figures_tell_what_is_under_the_pointer(browser):
    told = browser.execute_script(
        "const image = document.querySelector('img[data-spots]'), [x, y, words] = JSON.parse(image.dataset.spots)[0];"
        "image.scrollIntoView(); const frame = image.getBoundingClientRect();"
        "image.dispatchEvent(new PointerEvent('pointermove', "
        "{clientX: frame.left + x * frame.width, clientY: frame.top + y * frame.height}));"
        "const tip = document.querySelector('.tip'); return [words, tip.hidden ? '' : tip.textContent];"
    )
    assert told[0] == told[1] != ""
    browser.execute_script("document.querySelector('img[data-spots]').dispatchEvent(new PointerEvent('pointerleave'))")
    assert browser.execute_script("return document.querySelector('.tip').hidden")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_colours_turn_dark(browser):
    ground = "return getComputedStyle(document.body).backgroundColor"
    bright = browser.execute_script(ground)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    dark = browser.execute_script(ground)
    assert sum(map(int, dark[4:-1].split(","))) < 100 < sum(map(int, bright[4:-1].split(",")))
    browser.execute_script("document.querySelector('button.theme').click()")
    assert browser.execute_script(ground) == bright
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


CONTRASTS = """
const parts = text => {
  const found = text.match(/[\\d.]+/g).map(Number), scale = text.startsWith("color(") ? 255 : 1;
  return [...found.slice(0, 3).map(part => part * scale), found[3] ?? 1];
};
const over = (top, below) => [0, 1, 2].map(k => top[k] * top[3] + below[k] * (1 - top[3])).concat(1);
const ground = element => element === null ? [255, 255, 255, 1]
  : over(parts(getComputedStyle(element).backgroundColor), ground(element.parentElement));
const light = colour => colour.slice(0, 3).map(part => part / 255)
  .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, k) => sum + part * [0.2126, 0.7152, 0.0722][k], 0);
const ratio = element => {
  const [one, other] = [over(parts(getComputedStyle(element).color), ground(element)), ground(element)].map(light);
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
};
return [...document.querySelectorAll("p, li, a, h1, h2, h3, td, th, small, code, caption, figcaption, button, summary")]
  .filter(element => element.textContent.trim() && ratio(element) < 4.5)
  .map(element => [ratio(element), element.outerHTML.slice(0, 200)]);
"""


def test_text_stands_out_in_both_modes(browser):
    """As the guidelines of the web ask for text of usual size: 4.5 to 1."""
    browser.execute_script("document.querySelectorAll('details').forEach(found => found.open = true)")
    for theme in ("light", "dark"):
        browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
        assert browser.execute_script(CONTRASTS) == []


def test_page_is_read_without_scripts(browser):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.refresh()
    text = browser.find_element("tag name", "main").text
    assert "Items to look at" in text
    assert "Scores" in text


def requests_of(browser, page):
    """What the page asked for; the browser's own pages ask for things too."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [message["request"]["url"] for message in sent if message["documentURL"] == page]
