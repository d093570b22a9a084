"""Every page of the console and every form, by its path."""

from typing import Final

from headrace.admin.console.pages import groups, node, overview, records, security, topics
from headrace.admin.console.views import Page

PAGES: Final = (
    Page("GET", "/", overview.show),
    Page("GET", "/topics", topics.index),
    Page("POST", "/topics", topics.create),
    Page("GET", "/topics/{name}", records.index),
    Page("POST", "/topics/{name}/produce", records.produce),
    Page("GET", "/topics/{name}/partitions", topics.partitions),
    Page("POST", "/topics/{name}/partitions", topics.grow),
    Page("GET", "/topics/{name}/configs", topics.configs),
    Page("POST", "/topics/{name}/configs", topics.alter),
    Page("GET", "/topics/{name}/segments", topics.segments),
    Page("GET", "/topics/{name}/delete", topics.confirm_delete),
    Page("POST", "/topics/{name}/delete", topics.delete),
    Page("GET", "/topics/{name}/{partition}/{offset}", records.one),
    Page("POST", "/topics/{name}/search", records.search),
    Page("GET", "/topics/{name}/{partition}/{offset}/trace", records.trace),
    Page("GET", "/topics/{name}/{partition}/{offset}/{part}", records.download),
    Page("GET", "/groups", groups.index),
    Page("GET", "/groups/{group}", groups.one),
    Page("POST", "/groups/{group}/reset", groups.reset),
    Page("GET", "/groups/{group}/delete", groups.confirm_delete),
    Page("POST", "/groups/{group}/delete", groups.delete),
    Page("GET", "/transactions", node.transactions),
    Page("POST", "/transactions/{transactional_id}/abort", node.abort),
    Page("GET", "/pipelines", node.pipelines),
    Page("GET", "/storage", node.storage),
    Page("POST", "/storage/verify", node.verify),
    Page("GET", "/cluster", node.cluster),
    Page("GET", "/security", security.rules),
    Page("POST", "/security", security.add),
    Page("POST", "/security/remove", security.remove),
    Page("GET", "/security/users", security.users),
    Page("POST", "/security/users", security.create_user),
    Page("GET", "/security/users/{user}", security.user),
    Page("POST", "/security/users/{user}/password", security.set_password),
    Page("POST", "/security/users/{user}/remove", security.delete_user),
    Page("GET", "/operations", node.operations),
    Page("GET", "/operations/{operation}", node.operation),
    Page("POST", "/operations/{operation}/cancel", node.cancel),
    Page("POST", "/operations/{operation}/resume", node.resume),
)
