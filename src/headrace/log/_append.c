/* The common case of `PartitionLog.append` and `wait`, in one call.

       append(partition, batch, now_ms, waiter) -> base offset, or None

   None means: not here. Nothing has changed then, and the caller goes the way of the pure twin, which knows every case
   and raises the errors. Everything is decided before the first change, so there is no half-done append to undo.

   The common case: a valid batch of a client, not transactional, from no producer or from one that goes on where it left
   off, for a topic without special rules, into a chunk and a group that have room. Objects stay Python's own: this reads
   and writes the slots of `PartitionLog`, `Tail`, `TailIndex`, `Chunk`, `Group` and `Producer` where they lie. */

#include "../kernel.h"

#include <string.h>
#include <structmember.h>

enum { MAGIC = 2, RECORD_SIZE_MIN = 7 };
enum { GROUP_HEADER_SIZE = 44, ENTRY_HEAD_SIZE = 20, ENTRY_SIZE = 36 };

/* -- slots: where a class with __slots__ keeps them ---------------------------------------------------------------- */

enum { SLOTS_MAX = 12 };

typedef struct {
    const char *module, *name;
    const char *slots[SLOTS_MAX]; /* NULL behind the last */
    PyTypeObject *type;
    Py_ssize_t offsets[SLOTS_MAX];
} Layout;

enum { P_STORE, P_ENTRY_HEAD, P_TAIL, P_COMMIT_WAITERS, P_END_OFFSET, P_POLICY, P_LEADER_EPOCH, P_REMOVED, P_CEILING,
       P_EPOCH_STARTS, P_PRODUCERS };
static Layout partition_layout = {
    "headrace.log.partition", "PartitionLog",
    {"_store", "_entry_head", "_tail", "_commit_waiters", "end_offset", "policy", "leader_epoch", "removed", "ceiling",
     "epoch_starts", "producers"},
    NULL, {0}};
enum { T_CHUNKS, T_POSITION, T_INDEX };
static Layout tail_layout = {"headrace.log.tail", "Tail", {"_chunks", "_position", "index"}, NULL, {0}};
enum { I_OFFSETS, I_ENDS, I_POSITIONS, I_LSNS, I_MAX_TIMESTAMPS, I_TIMESTAMP_HIGH };
static Layout index_layout = {"headrace.log.index", "TailIndex",
                              {"offsets", "ends", "positions", "lsns", "max_timestamps", "timestamp_high"}, NULL, {0}};
enum { C_VIEW, C_USED };
static Layout chunk_layout = {"headrace.log.arena", "Chunk", {"view", "used"}, NULL, {0}};
enum { G_LSN, G_ROOM, G_PAYLOAD_SIZE, G_PIECES, G_TABLE, G_ENDS, G_WAITERS };
static Layout group_layout = {"headrace.log.wal.writer", "Group",
                              {"lsn", "room", "payload_size", "pieces", "table", "ends", "waiters"}, NULL, {0}};
static Layout wal_layout = {"headrace.log.wal.writer", "WalWriter", {NULL}, NULL, {0}}; /* no slots: only its type counts */
enum { S_BY_ID };
static Layout producers_layout = {"headrace.log.producers", "Producers", {"_by_id"}, NULL, {0}};
enum { R_EPOCH, R_BATCHES, R_LAST_TIMESTAMP, R_SEEN };
static Layout producer_layout = {"headrace.log.producers", "Producer",
                                 {"epoch", "batches", "last_timestamp_ms", "seen_ms"}, NULL, {0}};
static Layout sent_batch_layout = {"headrace.log.producers", "SentBatch", {NULL}, NULL, {0}}; /* a tuple */

static Layout *const layouts[] = {&tail_layout,      &index_layout,    &chunk_layout,      &group_layout,    &wal_layout,
                                  &producers_layout, &producer_layout, &sent_batch_layout, &partition_layout};

static PyObject *crc32c;
static PyObject *str_wal, *str_ceiling_margin, *str_refusal, *str_open, *str_unflushed, *str_is_scheduled, *str_schedule;
static PyObject *str_append, *str_expect_one, *str_durability, *str_bytes_max, *str_append_time, *str_before, *str_after,
    *str_compacted, *str_wal_value;

static PyObject *
import_name(const char *from, const char *name)
{
    PyObject *source = PyImport_ImportModule(from);
    PyObject *found = source != NULL ? PyObject_GetAttrString(source, name) : NULL;
    Py_XDECREF(source);
    return found;
}

static int
learn_layout(Layout *layout)
{
    PyObject *type = import_name(layout->module, layout->name);
    if (type == NULL) {
        return -1;
    }
    for (int i = 0; i < SLOTS_MAX && layout->slots[i] != NULL; i++) {
        PyObject *descriptor = PyObject_GetAttrString(type, layout->slots[i]);
        if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
            PyErr_Format(PyExc_TypeError, "%s.%s is not a slot", layout->name, layout->slots[i]);
            Py_XDECREF(descriptor);
            Py_DECREF(type);
            return -1;
        }
        layout->offsets[i] = ((PyMemberDescrObject *)descriptor)->d_member->offset;
        Py_DECREF(descriptor);
    }
    layout->type = (PyTypeObject *)type;
    return 0;
}

/* At the first append and not before: the classes are in modules that import this one. */
static int
learn_layouts(void)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i]->type == NULL && learn_layout(layouts[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Nothing but the very class: a subclass or a stand-in may do things of its own, and so is the twin's. */
static inline int
is_a(const Layout *layout, PyObject *object)
{
    return object != NULL && Py_TYPE(object) == layout->type;
}

static inline PyObject *
slot(const Layout *layout, PyObject *object, int which)
{
    return *(PyObject **)((char *)object + layout->offsets[which]); /* borrowed; NULL if it was never set */
}

static inline void
set_slot(const Layout *layout, PyObject *object, int which, PyObject *value)
{
    PyObject **place = (PyObject **)((char *)object + layout->offsets[which]);
    PyObject *old = *place;
    Py_INCREF(value);
    *place = value;
    Py_XDECREF(old);
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */

/* `*is_good` turns 0, and there is no exception, where `value` (borrowed, or NULL) is not a number of 64 bits. */
static inline int64_t
number_of(PyObject *value, int *is_good)
{
    int is_beyond = 0;
    if (value == NULL || !PyLong_Check(value)) {
        *is_good = 0;
        return -1;
    }
    int64_t number = PyLong_AsLongLongAndOverflow(value, &is_beyond);
    if (is_beyond) {
        *is_good = 0;
    }
    return number;
}

static inline int64_t
slot_number(const Layout *layout, PyObject *object, int which, int *is_good)
{
    return number_of(slot(layout, object, which), is_good);
}

/* A new reference, or NULL without an exception: whoever misses it leaves the work to the twin, and that complains. */
static inline PyObject *
attribute(PyObject *object, PyObject *name)
{
    PyObject *value = object != NULL ? PyObject_GetAttr(object, name) : NULL;
    if (value == NULL) {
        PyErr_Clear();
    }
    return value;
}

static inline int64_t
attribute_number(PyObject *object, PyObject *name, int *is_good)
{
    PyObject *value = attribute(object, name);
    int64_t number = number_of(value, is_good);
    Py_XDECREF(value);
    return number;
}

static inline int
attribute_is(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = attribute(object, name);
    Py_XDECREF(value);
    return value == wanted;
}

/* -- the topic's rules --------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *policy; /* the one decoded last; kept alive so that its address stays its own */
    int is_plain;
    int64_t bytes_max, after_ms;
} Rules;

static Rules rules;

static void
learn_rules(PyObject *policy)
{
    int is_good = 1;
    PyObject *durability = attribute(policy, str_durability);
    int is_wal = durability != NULL && PyUnicode_Check(durability) && PyUnicode_Compare(durability, str_wal_value) == 0;
    Py_XDECREF(durability);
    int64_t before_ms = attribute_number(policy, str_before, &is_good);
    Py_XINCREF(policy);
    Py_XSETREF(rules.policy, policy);
    rules.bytes_max = attribute_number(policy, str_bytes_max, &is_good);
    rules.after_ms = attribute_number(policy, str_after, &is_good);
    rules.is_plain = is_good && is_wal && before_ms == INT64_MAX && attribute_is(policy, str_append_time, Py_False) &&
                     attribute_is(policy, str_compacted, Py_False);
}

/* -- the batch ----------------------------------------------------------------------------------------------------- */

typedef struct {
    int32_t count, base_sequence;
    int16_t epoch;
    int64_t producer_id, max_timestamp;
} Batch;

/* Whether the batch is one that `check_batch` takes, the CRC aside, and the log has nothing special to do for. */
static int
is_common_batch(const unsigned char *data, Py_ssize_t size, Batch *batch)
{
    if (size < HEADER_SIZE || data[MAGIC_AT] != MAGIC || read_int(data + BATCH_LENGTH_AT, 4) + LENGTH_OVERHEAD != size) {
        return 0;
    }
    int attributes = (int)read_int(data + ATTRIBUTES_AT, 2) & 0xFFFF;
    int codec = attributes & CODEC_MASK;
    int64_t count = read_int(data + RECORD_COUNT_AT, 4);
    if (attributes & (TRANSACTIONAL | CONTROL) || codec > CODEC_LAST) {
        return 0;
    }
    if (count < 1 || read_int(data + LAST_OFFSET_DELTA_AT, 4) != count - 1 ||
        (codec ? 1 : count * RECORD_SIZE_MIN) > size - HEADER_SIZE) {
        return 0;
    }
    batch->count = (int32_t)count;
    batch->max_timestamp = read_int(data + MAX_TIMESTAMP_AT, 8);
    batch->producer_id = read_int(data + PRODUCER_ID_AT, 8);
    batch->epoch = (int16_t)read_int(data + PRODUCER_EPOCH_AT, 2);
    batch->base_sequence = (int32_t)read_int(data + BASE_SEQUENCE_AT, 4);
    return batch->producer_id == -1 || (batch->producer_id >= 0 && batch->epoch >= 0 && batch->base_sequence >= 0);
}

/* The CRC has one implementation in the product, and it is not this file's. */
static int
has_valid_crc(const unsigned char *data, Py_ssize_t size)
{
    int is_good = 1;
    PyObject *covered = PyMemoryView_FromMemory((char *)data + CRC_START, size - CRC_START, PyBUF_READ);
    PyObject *found = covered != NULL ? PyObject_CallOneArg(crc32c, covered) : NULL;
    Py_XDECREF(covered);
    int64_t crc = number_of(found, &is_good);
    Py_XDECREF(found);
    PyErr_Clear();
    return is_good && crc == (int64_t)(uint32_t)read_int(data + 17, 4);
}

/* Whether the client's clock is no further ahead than the topic allows; what cannot be subtracted is not common. */
static int
is_in_time(const Batch *batch, int64_t now_ms)
{
    int64_t ahead_ms;
    return !__builtin_sub_overflow(batch->max_timestamp, now_ms, &ahead_ms) && ahead_ms <= rules.after_ms;
}

/* -- the place ----------------------------------------------------------------------------------------------------- */

/* Where a batch goes, all of it read and checked before the first change. `wal` and `group` are held, the rest is
   borrowed from the partition: the log belongs to the loop's thread, and nothing that is called until the end is the
   log's. */
typedef struct {
    PyObject *wal, *group, *tail, *index, *chunk, *producer;
    unsigned char *memory;
    int64_t base, epoch, used, position, timestamp_high, lsn, payload_size, room, unflushed;
} Place;

/* The producer that this batch continues, borrowed; NULL where the twin must look. */
static PyObject *
continued_producer(PyObject *partition, const Batch *batch)
{
    int is_good = 1;
    PyObject *producers = slot(&partition_layout, partition, P_PRODUCERS);
    PyObject *by_id = is_a(&producers_layout, producers) ? slot(&producers_layout, producers, S_BY_ID) : NULL;
    PyObject *key = by_id != NULL && PyDict_Check(by_id) ? PyLong_FromLongLong(batch->producer_id) : NULL;
    PyObject *producer = key != NULL ? PyDict_GetItemWithError(by_id, key) : NULL;
    Py_XDECREF(key);
    PyErr_Clear();
    if (!is_a(&producer_layout, producer) || slot_number(&producer_layout, producer, R_EPOCH, &is_good) != batch->epoch) {
        return NULL;
    }
    PyObject *batches = slot(&producer_layout, producer, R_BATCHES);
    Py_ssize_t kept = batches != NULL ? PyObject_Size(batches) : 0;
    int64_t last_sequence = -1;
    for (Py_ssize_t nth = 0; is_good && nth < kept; nth++) {
        PyObject *sent = PySequence_GetItem(batches, nth);
        if (is_a(&sent_batch_layout, sent) && PyTuple_GET_SIZE(sent) > 1) {
            /* Sequences come round again: one that continues the last batch may still repeat an earlier one. */
            last_sequence = number_of(PyTuple_GET_ITEM(sent, 1), &is_good);
            if (number_of(PyTuple_GET_ITEM(sent, 0), &is_good) == batch->base_sequence) {
                is_good = 0;
            }
        } else {
            is_good = 0;
        }
        Py_XDECREF(sent);
    }
    PyErr_Clear();
    return is_good && kept > 0 && ((last_sequence + 1) & 0x7FFFFFFF) == batch->base_sequence ? producer : NULL;
}

static int
is_epoch_noted(PyObject *partition, int64_t epoch)
{
    int is_good = 1;
    PyObject *starts = slot(&partition_layout, partition, P_EPOCH_STARTS);
    if (starts == NULL || !PyList_Check(starts) || !PyList_GET_SIZE(starts)) {
        return 0;
    }
    PyObject *last = PyList_GET_ITEM(starts, PyList_GET_SIZE(starts) - 1);
    return PyTuple_Check(last) && PyTuple_GET_SIZE(last) && number_of(PyTuple_GET_ITEM(last, 0), &is_good) == epoch &&
           is_good;
}

static int
find_in_partition(PyObject *partition, const Batch *batch, int64_t margin, Place *place)
{
    int is_good = 1;
    place->base = slot_number(&partition_layout, partition, P_END_OFFSET, &is_good);
    place->epoch = slot_number(&partition_layout, partition, P_LEADER_EPOCH, &is_good);
    int64_t ceiling = slot_number(&partition_layout, partition, P_CEILING, &is_good);
    PyObject *head = slot(&partition_layout, partition, P_ENTRY_HEAD);
    /* Beyond the margin the twin asks for a higher ceiling; negative numbers are nobody's and would overflow. */
    if (!is_good || place->base < 0 || margin < 0 || ceiling < 0 || place->base > ceiling - margin - batch->count ||
        place->epoch != (int32_t)place->epoch || !is_epoch_noted(partition, place->epoch) ||
        slot(&partition_layout, partition, P_REMOVED) != Py_False ||
        slot(&partition_layout, partition, P_COMMIT_WAITERS) != Py_None || head == NULL || !PyBytes_Check(head) ||
        PyBytes_GET_SIZE(head) != ENTRY_HEAD_SIZE) {
        return 0;
    }
    place->producer = batch->producer_id != -1 ? continued_producer(partition, batch) : NULL;
    return batch->producer_id == -1 || place->producer != NULL;
}

static int
find_in_tail(PyObject *partition, Py_ssize_t size, Place *place)
{
    int is_good = 1;
    PyObject *tail = place->tail = slot(&partition_layout, partition, P_TAIL);
    if (!is_a(&tail_layout, tail)) {
        return 0;
    }
    place->index = slot(&tail_layout, tail, T_INDEX);
    PyObject *chunks = slot(&tail_layout, tail, T_CHUNKS);
    if (!is_a(&index_layout, place->index) || chunks == NULL || !PyList_Check(chunks) || !PyList_GET_SIZE(chunks)) {
        return 0;
    }
    PyObject *chunk = place->chunk = PyList_GET_ITEM(chunks, PyList_GET_SIZE(chunks) - 1);
    PyObject *view = is_a(&chunk_layout, chunk) ? slot(&chunk_layout, chunk, C_VIEW) : NULL;
    if (view == NULL || !PyMemoryView_Check(view) || PyMemoryView_GET_BUFFER(view)->readonly) {
        return 0;
    }
    const Py_buffer *memory = PyMemoryView_GET_BUFFER(view);
    place->used = slot_number(&chunk_layout, chunk, C_USED, &is_good);
    place->position = slot_number(&tail_layout, tail, T_POSITION, &is_good);
    place->timestamp_high = slot_number(&index_layout, place->index, I_TIMESTAMP_HIGH, &is_good);
    if (!is_good || place->used < 0 || memory->len - place->used < size) {
        return 0;
    }
    place->memory = (unsigned char *)memory->buf + place->used;
    return 1;
}

static int
find_in_group(PyObject *wal, PyObject *group, Py_ssize_t size, Place *place)
{
    int is_good = 1;
    if (!is_a(&wal_layout, wal) || !is_a(&group_layout, group) || !attribute_is(wal, str_refusal, Py_None)) {
        return 0;
    }
    place->payload_size = slot_number(&group_layout, group, G_PAYLOAD_SIZE, &is_good);
    place->room = slot_number(&group_layout, group, G_ROOM, &is_good);
    place->lsn = slot_number(&group_layout, group, G_LSN, &is_good) + GROUP_HEADER_SIZE + place->payload_size;
    place->unflushed = attribute_number(wal, str_unflushed, &is_good);
    return is_good && size <= place->room - place->payload_size;
}

/* -- the append ---------------------------------------------------------------------------------------------------- */

static PyObject *
new_entry(PyObject *partition, const Place *place, Py_ssize_t size)
{
    PyObject *entry = PyBytes_FromStringAndSize(NULL, ENTRY_SIZE);
    if (entry != NULL) {
        unsigned char *row = (unsigned char *)PyBytes_AS_STRING(entry);
        memcpy(row, PyBytes_AS_STRING(slot(&partition_layout, partition, P_ENTRY_HEAD)), ENTRY_HEAD_SIZE);
        put_int(row + ENTRY_HEAD_SIZE, size, 4);
        put_int(row + ENTRY_HEAD_SIZE + 4, place->base, 8);
        put_int(row + ENTRY_HEAD_SIZE + 12, place->epoch, 4);
    }
    return entry;
}

/* A `SentBatch` without the detour through its own `__new__`. */
static PyObject *
new_sent_batch(const Batch *batch, int64_t base)
{
    int64_t last_sequence = ((int64_t)batch->base_sequence + batch->count - 1) & 0x7FFFFFFF;
    PyObject *arguments = Py_BuildValue("((iLLL))", batch->base_sequence, (long long)last_sequence, (long long)base,
                                        (long long)(base + batch->count));
    PyObject *sent = arguments != NULL ? PyTuple_Type.tp_new(sent_batch_layout.type, arguments, NULL) : NULL;
    Py_XDECREF(arguments);
    return sent;
}

static int
append_to(PyObject *sequence, PyObject *value)
{
    PyObject *done = PyObject_CallMethodOneArg(sequence, str_append, value);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Adds `waiter` to those of the group, unless it was the last to ask already. */
static int
wait_for(PyObject *group, PyObject *waiter)
{
    PyObject *waiters = slot(&group_layout, group, G_WAITERS);
    Py_ssize_t count = PyList_GET_SIZE(waiters);
    if (count && PyList_GET_ITEM(waiters, count - 1) == waiter) {
        return 0;
    }
    PyObject *done = PyObject_CallMethodNoArgs(waiter, str_expect_one);
    Py_XDECREF(done);
    return done == NULL ? -1 : PyList_Append(waiters, waiter);
}

static int
schedule(PyObject *wal)
{
    if (attribute_is(wal, str_is_scheduled, Py_True)) {
        return 0;
    }
    PyObject *done = PyObject_CallMethodNoArgs(wal, str_schedule);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

enum { N_BASE, N_END, N_LSN, N_NEWEST, N_NOW, N_USED, N_POSITION, N_PAYLOAD_SIZE, N_ROOM, N_UNFLUSHED, N_COUNT };

/* Nothing is decided here any more, and only memory can run out; what is done by then is done. */
static int
change_all(PyObject *partition, const Place *place, const Batch *batch, PyObject *const *numbers, PyObject *view,
           PyObject *entry, PyObject *sent, PyObject *waiter)
{
    PyObject *group = place->group, *tail = place->tail, *index = place->index, *producer = place->producer;
    set_slot(&group_layout, group, G_PAYLOAD_SIZE, numbers[N_PAYLOAD_SIZE]);
    set_slot(&group_layout, group, G_ROOM, numbers[N_ROOM]);
    set_slot(&chunk_layout, place->chunk, C_USED, numbers[N_USED]);
    if (PyList_Append(slot(&group_layout, group, G_PIECES), view) < 0 ||
        PyList_Append(slot(&group_layout, group, G_TABLE), entry) < 0 ||
        PyDict_SetItem(slot(&group_layout, group, G_ENDS), partition, numbers[N_END]) < 0 ||
        PyObject_SetAttr(place->wal, str_unflushed, numbers[N_UNFLUSHED]) < 0 ||
        append_to(slot(&index_layout, index, I_OFFSETS), numbers[N_BASE]) < 0 ||
        append_to(slot(&index_layout, index, I_ENDS), numbers[N_END]) < 0 ||
        append_to(slot(&index_layout, index, I_POSITIONS), slot(&tail_layout, tail, T_POSITION)) < 0 ||
        append_to(slot(&index_layout, index, I_LSNS), numbers[N_LSN]) < 0 ||
        append_to(slot(&index_layout, index, I_MAX_TIMESTAMPS), numbers[N_NEWEST]) < 0) {
        return -1;
    }
    if (batch->max_timestamp > place->timestamp_high) {
        set_slot(&index_layout, index, I_TIMESTAMP_HIGH, numbers[N_NEWEST]);
    }
    set_slot(&tail_layout, tail, T_POSITION, numbers[N_POSITION]);
    set_slot(&partition_layout, partition, P_END_OFFSET, numbers[N_END]);
    if (producer != NULL) {
        set_slot(&producer_layout, producer, R_LAST_TIMESTAMP, numbers[N_NEWEST]);
        set_slot(&producer_layout, producer, R_SEEN, numbers[N_NOW]);
        if (append_to(slot(&producer_layout, producer, R_BATCHES), sent) < 0) {
            return -1;
        }
    }
    return (waiter != Py_None && wait_for(group, waiter) < 0) || schedule(place->wal) < 0 ? -1 : 0;
}

/* The base offset, or NULL with an exception. */
static PyObject *
append_at(PyObject *partition, const Place *place, const unsigned char *data, Py_ssize_t size, const Batch *batch,
          int64_t now_ms, PyObject *waiter)
{
    const int64_t values[N_COUNT] = {
        [N_BASE] = place->base,
        [N_END] = place->base + batch->count,
        [N_LSN] = place->lsn,
        [N_NEWEST] = batch->max_timestamp,
        [N_NOW] = now_ms,
        [N_USED] = place->used + size,
        [N_POSITION] = place->position + size,
        [N_PAYLOAD_SIZE] = place->payload_size + size,
        [N_ROOM] = place->room - ENTRY_SIZE,
        [N_UNFLUSHED] = place->unflushed + size,
    };
    PyObject *numbers[N_COUNT];
    int has_all = 1;
    for (int i = 0; i < N_COUNT; i++) {
        numbers[i] = PyLong_FromLongLong(values[i]);
        has_all = has_all && numbers[i] != NULL;
    }
    PyObject *view = PySequence_GetSlice(slot(&chunk_layout, place->chunk, C_VIEW), place->used, place->used + size);
    PyObject *entry = view != NULL ? new_entry(partition, place, size) : NULL;
    PyObject *sent = entry != NULL && place->producer != NULL ? new_sent_batch(batch, place->base) : NULL;
    PyObject *result = NULL;
    if (has_all && entry != NULL && (place->producer == NULL || sent != NULL)) {
        memcpy(place->memory, data, size);
        put_int(place->memory, place->base, 8);
        put_int(place->memory + LEADER_EPOCH_AT, place->epoch, 4);
        if (change_all(partition, place, batch, numbers, view, entry, sent, waiter) == 0) {
            result = Py_NewRef(numbers[N_BASE]);
        }
    }
    for (int i = 0; i < N_COUNT; i++) {
        Py_XDECREF(numbers[i]);
    }
    Py_XDECREF(view);
    Py_XDECREF(entry);
    Py_XDECREF(sent);
    return result;
}

/* The base offset; NULL where the twin must do it, or with an exception. */
static PyObject *
append_common(PyObject *partition, const unsigned char *data, Py_ssize_t size, int64_t now_ms, PyObject *waiter)
{
    Batch batch;
    Place place = {NULL};
    int is_good = 1;
    PyObject *policy = slot(&partition_layout, partition, P_POLICY);
    if (policy != rules.policy) {
        learn_rules(policy);
    }
    if (!rules.is_plain || size > rules.bytes_max || !is_common_batch(data, size, &batch) || !is_in_time(&batch, now_ms)) {
        return NULL;
    }
    PyObject *store = slot(&partition_layout, partition, P_STORE), *result = NULL;
    int64_t margin = attribute_number(store, str_ceiling_margin, &is_good);
    place.wal = attribute(store, str_wal);
    place.group = attribute(place.wal, str_open);
    if (is_good && find_in_group(place.wal, place.group, size, &place) &&
        find_in_partition(partition, &batch, margin, &place) && find_in_tail(partition, size, &place) &&
        has_valid_crc(data, size)) {
        result = append_at(partition, &place, data, size, &batch, now_ms, waiter);
    }
    Py_XDECREF(place.group);
    Py_XDECREF(place.wal);
    return result;
}

static PyObject *
append(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "append(partition, batch, now_ms, waiter)");
        return NULL;
    }
    if (partition_layout.type == NULL && learn_layouts() < 0) {
        return NULL;
    }
    Py_buffer buffer;
    int is_good = is_a(&partition_layout, arguments[0]);
    int64_t now_ms = number_of(arguments[2], &is_good);
    if (!is_good || PyObject_GetBuffer(arguments[1], &buffer, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *base = append_common(arguments[0], buffer.buf, buffer.len, now_ms, arguments[3]);
    PyBuffer_Release(&buffer);
    if (base == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return base;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL,
     "append(partition, batch, now_ms, waiter) -> base offset, or None where the twin must do it"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_append", "The common append, in one call.", -1, methods,
                                    NULL,                  NULL,      NULL,                              NULL};

static const Name names[] = {
    {&str_wal, "wal"},
    {&str_ceiling_margin, "ceiling_margin"},
    {&str_refusal, "_refusal"},
    {&str_open, "_open"},
    {&str_unflushed, "unflushed_bytes"},
    {&str_is_scheduled, "_is_scheduled"},
    {&str_schedule, "_schedule"},
    {&str_append, "append"},
    {&str_expect_one, "expect_one"},
    {&str_durability, "durability"},
    {&str_bytes_max, "message_bytes_max"},
    {&str_append_time, "uses_append_time"},
    {&str_before, "timestamp_before_ms"},
    {&str_after, "timestamp_after_ms"},
    {&str_compacted, "is_compacted"},
    {&str_wal_value, "wal"},
};

PyMODINIT_FUNC
PyInit__append(void)
{
    if (intern_names(names, sizeof names / sizeof *names) < 0) {
        return NULL;
    }
    if ((crc32c = import_name("crc32c", "crc32c")) == NULL) {
        return NULL;
    }
    PyObject *self = PyModule_Create(&module);
    /* Facts that Python states too; a test holds the two together. */
    if (self == NULL || PyModule_AddIntMacro(self, HEADER_SIZE) < 0 || PyModule_AddIntMacro(self, LENGTH_OVERHEAD) < 0 ||
        PyModule_AddIntMacro(self, CRC_START) < 0 || PyModule_AddIntMacro(self, RECORD_SIZE_MIN) < 0 ||
        PyModule_AddIntMacro(self, GROUP_HEADER_SIZE) < 0 || PyModule_AddIntMacro(self, ENTRY_SIZE) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    return self;
}
