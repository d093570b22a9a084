"""Topics that come into being because somebody asked for them (C57): on Metadata and on Produce, nowhere else."""

from collections.abc import Iterable

import structlog

from headrace.broker.deferred import Deferred
from headrace.broker.ownership import is_internal
from headrace.broker.topic_names import check_new_name
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError, TopicNotFound

log = structlog.get_logger(__name__)


async def create_topic(name: str, session: Session) -> HeadraceError | None:
    """Create `name` with the door's defaults; says why not instead of raising."""
    try:
        check_new_name(name, session.broker.topics)
        if is_internal(name):
            raise TopicNotFound(f"'{name}' comes into being with the first thing its coordinator has to remember")
        await session.broker.topics.ensure(name, partitions=session.settings.num_partitions)
    except HeadraceError as error:
        return error
    return None


def create_missing(names: Iterable[str | bytes], session: Session, done: str) -> Deferred[str]:
    """Create all of `names`; resolved with `done` when it is over, however it went."""
    deferred: Deferred[str] = Deferred()

    async def create() -> None:
        for name in names:
            if isinstance(name, str) and (error := await create_topic(name, session)) is not None:
                log.info("topic not created on demand", topic=name, reason=str(error))
        deferred.resolve(done)

    session.door.tasks.spawn(create())
    return deferred
