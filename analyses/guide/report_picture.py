"""The picture of a report in README.md: `python -m analyses.guide.report_picture REPORT.html PICTURE.png`.

The page is shortened to what a picture has room for: the verdict, two figures, the voters, and who votes like whom. It
needs chromium and chromedriver.
"""

import shutil
import sys
import tempfile
from base64 import b64decode
from io import BytesIO
from pathlib import Path

from PIL import Image
from selenium import webdriver

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")
COLOURS = 256
SHORTENED = """
const style = document.createElement("style");
style.textContent = `#data-1-signal, #data-1-items, details, .reasons ul, .troubles, .contents, #data-1-voters > p,
  #data-1-dependence > p:nth-of-type(n+2), #data-1-methods .figures figure:nth-of-type(n+2) { display: none; }`;
document.head.append(style);
return Math.ceil(document.querySelector("#data-1-dependence .figures").getBoundingClientRect().bottom + window.scrollY);
"""


def take(page: Path, picture: Path, width: int = 1200) -> None:
    """The page from its top to the end of who votes like whom."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (*FLAGS, f"--user-data-dir={tempfile.mkdtemp()}", f"--window-size={width},1500"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get(page.absolute().as_uri())
        clip = {"x": 0, "y": 0, "width": width, "height": driver.execute_script(SHORTENED), "scale": 1}
        taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        image = Image.open(BytesIO(b64decode(taken["data"]))).convert("RGB")
        image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(picture, optimize=True)
    finally:
        driver.quit()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
