"""Where things lie in the bucket, below the configured prefix.

    cluster.json                            whose bucket this is; create-only
    data/<2 hex>/<object id>.hro            data objects; immutable, create-only
    lives/<20 digits>.life                  which life writes to the bucket, the newest last; create-only
    manifests/<20 digits>.hrm               commit manifests, numbered from 1 without gaps; create-only
    checkpoints/<20 digits>.hrc             the inventory after the manifest of that number; create-only
    metastore/<20 digits>.snapshot          metastore snapshots, by revision
    brokers/<broker id>/<20 digits>.state   log checkpoints (producer state and the like), in the order they were saved
    ceilings/<broker id>/<20 digits>.hrl    how far offsets may have been given out, in the order they were written

Numbers are zero-padded so that listing order is numeric order. Data objects are spread over 256 prefixes
because stores shard by key prefix, and a sequential prefix would land every PUT on one shard.
"""

from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.errors import Invalid
from headrace.ids import BrokerEpoch, BrokerId

CLUSTER_MARKER: Final = "cluster.json"
DATA: Final = "data/"
MANIFESTS: Final = "manifests/"
CHECKPOINTS: Final = "checkpoints/"
LIVES: Final = "lives/"
METASTORE_SNAPSHOTS: Final = "metastore/"
BROKER_STATES: Final = "brokers/"
CEILINGS: Final = "ceilings/"

_DATA_SUFFIX: Final = ".hro"
_MANIFEST_SUFFIX: Final = ".hrm"
_CHECKPOINT_SUFFIX: Final = ".hrc"
_SNAPSHOT_SUFFIX: Final = ".snapshot"
_STATE_SUFFIX: Final = ".state"
_CEILINGS_SUFFIX: Final = ".hrl"
_STATES_FIRST: Final = 10**19
"""Above every LSN."""
_PER_EPOCH: Final = 10**9
"""Files that one life of a broker numbers."""
_LIFE_SUFFIX: Final = ".life"
_LIFE_DIGITS: Final = 16


class ObjectId(NamedTuple):
    """Unique within a metastore: a broker epoch is new at every registration, a sequence within it rises.

    The id of the life that wrote it makes it unique beside copies of that metastore, too. Names of the first version have none.
    """

    broker: BrokerId
    epoch: BrokerEpoch
    sequence: int
    life: str = ""

    def __str__(self) -> str:
        numbers = f"{self.broker:08x}-{self.epoch:08x}-{self.sequence:012x}"
        return f"{numbers}-{self.life}" if self.life else numbers


def data_key(object_id: ObjectId) -> str:
    name = str(object_id)
    return f"{DATA}{crc32c(name.encode()) & 0xFF:02x}/{name}{_DATA_SUFFIX}"


def object_id_of(key: str) -> ObjectId:
    """The id in a data object's key; Invalid if the key is not one of ours."""
    name = key.rsplit("/", 1)[-1].removesuffix(_DATA_SUFFIX)
    numbers, life = name.split("-")[:3], name.split("-")[3:]
    try:
        broker, epoch, sequence = (int(part, 16) for part in numbers)
        if life:
            (digits,) = life
            int(digits, 16)
    except ValueError as error:
        raise Invalid(f"not a data object key: {key}") from error
    object_id = ObjectId(BrokerId(broker), BrokerEpoch(epoch), sequence, "".join(life))
    if data_key(object_id) != key or len(object_id.life) not in (0, _LIFE_DIGITS):
        raise Invalid(f"not a data object key: {key}")
    return object_id


def manifest_key(number: int) -> str:
    return f"{MANIFESTS}{number:020d}{_MANIFEST_SUFFIX}"


def checkpoint_key(number: int) -> str:
    return f"{CHECKPOINTS}{number:020d}{_CHECKPOINT_SUFFIX}"


def life_key(number: int) -> str:
    return f"{LIVES}{number:020d}{_LIFE_SUFFIX}"


def metastore_snapshot_key(revision: int) -> str:
    return f"{METASTORE_SNAPSHOTS}{revision:020d}{_SNAPSHOT_SUFFIX}"


def broker_state_key(broker: BrokerId, epoch: BrokerEpoch, sequence: int) -> str:
    """Ordered by the life of the broker and by when it was saved there: not by LSN, for a new ring begins at 0.

    Formerly it was the LSN; every one of those comes before all of these.
    """
    number = _STATES_FIRST + epoch * _PER_EPOCH + sequence
    return f"{BROKER_STATES}{broker}/{number:020d}{_STATE_SUFFIX}"


def ceilings_key(broker: BrokerId, epoch: BrokerEpoch, sequence: int) -> str:
    return f"{CEILINGS}{broker}/{epoch * _PER_EPOCH + sequence:020d}{_CEILINGS_SUFFIX}"


def number_of(key: str) -> int:
    """The number in the key of a manifest, checkpoint, snapshot or broker state; Invalid for foreign keys."""
    digits = key.rsplit("/", 1)[-1].split(".", 1)[0]
    if len(digits) != 20 or not digits.isascii() or not digits.isdigit():
        raise Invalid(f"not a numbered key: {key}")
    return int(digits)
