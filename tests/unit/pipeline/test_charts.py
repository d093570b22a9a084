from xml.etree import ElementTree

from headrace.pipeline.charts import Series, bar_chart, line_chart


def test_charts_are_well_formed_and_escape_what_they_show() -> None:
    chart = line_chart(
        "a < b & c", ["10:00", "10:01", "10:02"], [Series(name="p99", values=[1.0, None, 30.0])], unit="ms"
    )
    tree = ElementTree.fromstring(chart)
    texts = [element.text for element in tree.iter("text")]
    assert "a < b & c" in texts
    assert "50 ms" in texts, "the axis ends at the next round number"
    bars = ElementTree.fromstring(bar_chart("pages", ["<script>", "Orders#show"], [3.0, 1.0]))
    assert len(list(bars.iter("rect"))) == 2


def test_charts_of_nothing_are_still_charts() -> None:
    ElementTree.fromstring(line_chart("nothing", [], [Series(name="x", values=[])]))
    ElementTree.fromstring(bar_chart("nothing", [], []))


def test_quantities_read_as_people_say_them() -> None:
    chart = bar_chart("Slowest", ["Some::Module::With::A::Very::Long::Name#action"], [1500.0], unit="ms")
    assert "1.5 s<" in chart
    assert "…e::With::A::Very::Long::Name#action<" in chart
