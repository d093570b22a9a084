"""Wasm modules: every version, which topics have it, and the forms that give one to a topic, take it back, or remove it."""

from typing import Any

from headrace.admin.console.views import Asking, View, go_to


async def index(page: Asking) -> View:
    return View("modules.html", title="Modules", found=await page.ask("ListWasmModules", **page.paging()))


async def assign(page: Asking) -> View:
    form = page.form
    fields: dict[str, Any] = {"name": form.get("topic", ""), "module": form.get("module", "")}  # Any: the route's own
    if (dead_letters := form.get("dead_letter_topic", "").strip()) or not fields["module"]:
        fields["dead_letter_topic"] = dead_letters
    done = await page.ask("AssignWasmToTopic", **fields)
    if not done.module:
        return go_to("modules", f"{done.topic} has no module any more.")
    return go_to("modules", f"What is produced to {done.topic} goes through {done.module} from its next batch on.")


async def remove(page: Asking) -> View:
    done = await page.ask("RemoveWasmModule", module=page.names["module"])
    return go_to("modules", done.message.capitalize() + ".")
