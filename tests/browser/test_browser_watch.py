"""The fixtures of this folder see what they are there to see."""

BAD = """<!doctype html><html lang="en"><body><div class="wide" style="width: 900px">too wide</div>
<img src="http://negwise.invalid/x.png" alt="">
<script>console.error("said"); throw new Error("thrown")</script></body></html>"""


def test_trouble_is_seen(open_page, overflow, tmp_path):
    (tmp_path / "bad.html").write_text(BAD)
    page = open_page(tmp_path / "bad.html", width=390)
    assert overflow(page)[:2] == ["the page by 518", "DIV.wide by 518"]
    found = "\n".join(open_page.trouble)
    for part in ("request: http://negwise.invalid/x.png", "console: said", "uncaught: thrown"):
        assert part in found
    open_page.trouble.clear()  # else this test would fail, as it should for any other page


def test_a_quiet_page_passes(open_page, overflow, tmp_path):
    (tmp_path / "good.html").write_text('<!doctype html><html lang="en"><body><p>well</p></body></html>')
    page = open_page(tmp_path / "good.html", width=390, dark=True)
    assert page.inner_text("p") == "well"
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert overflow(page) == [] and open_page.trouble == []
