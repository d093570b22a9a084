"""Pages of a list: together they are the list, sorted, once."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.admin.api.paging import PageRequest, page_of
from headrace.broker.slices import Turns

# Many alike, so that names decide; longer than what gathers before it is sorted.
LISTS = st.integers(1, 900).flatmap(lambda count: st.lists(st.integers(-3, 3), min_size=count, max_size=count))


async def read_all(rows: list[tuple[str, int]], order_by: str, page_size: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    token = ""
    while True:
        page = await page_of(
            rows,
            PageRequest(order_by=order_by, page_size=page_size, page_token=token),
            turns=Turns(),
            name=lambda row: row[0],
            orders={"number": lambda row: row[1]},
        )
        assert page.total == len(rows)
        assert len(page.items) <= page_size
        found += page.items
        token = page.next_token
        if not token:
            return found


@given(LISTS, st.booleans(), st.integers(20, 1000))
async def test_pages_are_the_sorted_list(numbers: list[int], is_descending: bool, page_size: int) -> None:
    rows = [(f"row-{place * 7919 % 1009}", number) for place, number in enumerate(numbers)]
    found = await read_all(rows, "number desc" if is_descending else "number", page_size)
    assert found == sorted(rows, key=lambda row: (row[1], row[0]), reverse=is_descending)
