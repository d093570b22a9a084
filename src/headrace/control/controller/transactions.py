"""The transactions by which a controller changes brokers. Pure, as `control/plans.py`.

Each carries the guard of the controller's office, so that one which is no longer active writes nothing, and compares what it was
decided on. In its other branch it reads those keys again.
"""

from headrace.control import keys, plans, values
from headrace.control import values_pb2 as pb
from headrace.control.controller.machine import State
from headrace.control.metastore import NO_LEASE, Compare, Delete, KeyValue, Op, Put, Read, Txn, only, unchanged


def register(
    broker_id: str,
    endpoint: pb.BrokerRegistration,
    *,
    identity: KeyValue | None,
    counter: KeyValue | None,
    guard: Compare,
    now_ms: int,
) -> plans.BrokerNumbers:
    """A new epoch, which fences whoever had the one before; the broker is starting."""
    starting = pb.BrokerRegistration()
    starting.CopyFrom(endpoint)
    starting.state = State.STARTING.value
    taken = plans.register_broker(
        broker_id, starting, identity=identity, counter=counter, lease=NO_LEASE, now_ms=now_ms
    )
    txn = _guarded(guard, taken.txn.compares, taken.txn.then_ops)
    return plans.BrokerNumbers(taken.numeric_id, taken.broker_epoch, txn)


def fence(broker_id: str, *, identity: KeyValue, registration: KeyValue | None, guard: Compare) -> Txn:
    """Take this incarnation's epoch away: each of its transactions compares the identity, and fails from now on."""
    known = values.decode(pb.BrokerIdentity, identity.value)
    known.broker_epoch += 1
    ops: list[Op] = [Put(identity.key, values.encode(known))]
    compares = [unchanged(identity.key, identity.mod_revision)]
    if registration is not None:
        fenced = values.decode(pb.BrokerRegistration, registration.value)
        fenced.state = State.FENCED.value
        fenced.broker_epoch = known.broker_epoch
        ops.append(Put(registration.key, values.encode(fenced)))
        compares.append(unchanged(registration.key, registration.mod_revision))
    return _guarded(guard, tuple(compares), tuple(ops))


def set_state(registration: KeyValue, state: State, *, addresses: pb.BrokerRegistration | None, guard: Compare) -> Txn:
    """With the addresses of its doors, which a broker knows only once they are open."""
    changed = values.decode(pb.BrokerRegistration, registration.value)
    changed.state = state.value
    if addresses is not None:
        changed.host, changed.port_kafka = addresses.host, addresses.port_kafka
        changed.port_quic = addresses.port_quic
        changed.ring_id = addresses.ring_id
        changed.port_peer = addresses.port_peer
        changed.advertised.clear()
        changed.advertised.update(addresses.advertised)
    compares = (unchanged(registration.key, registration.mod_revision),)
    return _guarded(guard, compares, (Put(registration.key, values.encode(changed)),))


def remove(broker_id: str, *, identity: KeyValue, guard: Compare) -> Txn:
    """Of a broker that has stopped: no longer live, and what is still on its way from it fails."""
    known = values.decode(pb.BrokerIdentity, identity.value)
    known.broker_epoch += 1
    ops = (Put(identity.key, values.encode(known)), Delete(only(keys.broker(broker_id))))
    return _guarded(guard, (unchanged(identity.key, identity.mod_revision),), ops)


def put_takeover(owner: str, takeover: pb.Takeover, *, compares: tuple[Compare, ...], guard: Compare) -> Txn:
    """`compares` are of what it was decided on."""
    return _guarded(guard, compares, (Put(keys.takeover(owner), values.encode(takeover)),))


def _guarded(guard: Compare, compares: tuple[Compare, ...], ops: tuple[Op, ...]) -> Txn:
    every = (guard, *compares)
    return Txn(every, ops, tuple(Read(only(each.key)) for each in every))
