"""The picture of a report in README.md: `python -m analyses.guide.report_picture REPORT.html PICTURE.png`.

It needs chromium and chromedriver.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from selenium import webdriver

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")


def take(page: Path, picture: Path, width: int = 1200, height: int = 1500) -> None:
    """The top of a page."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (*FLAGS, f"--user-data-dir={tempfile.mkdtemp()}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get(page.absolute().as_uri())
        driver.save_screenshot(str(picture))
    finally:
        driver.quit()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
