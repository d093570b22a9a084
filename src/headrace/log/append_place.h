/* Where `_append.c` puts a batch: the objects of the log it reads and writes, and whether each has room.

   The layouts name Python's own slots: renaming one there means renaming it here, and the import fails until it is done. */

#ifndef HEADRACE_APPEND_PLACE_H
#define HEADRACE_APPEND_PLACE_H

#include "append_batch.h"

enum { GROUP_HEADER_SIZE = 44, ENTRY_HEAD_SIZE = 20, ENTRY_SIZE = 36 };

enum { P_STORE, P_ENTRY_HEAD, P_TAIL, P_PLAIN_SIZE_MAX, P_END_OFFSET, P_LEADER_EPOCH, P_CEILING, P_EPOCH_STARTS, P_PRODUCERS };
static Layout partition_layout = {
    "headrace.log.partition", "PartitionLog",
    {"_store", "_entry_head", "tail", "plain_size_max", "end_offset", "leader_epoch", "ceiling", "epoch_starts", "producers"},
    NULL, {0}};
enum { T_CHUNKS, T_POSITION, T_INDEX };
static Layout tail_layout = {"headrace.log.tail", "Tail", {"_chunks", "_position", "index"}, NULL, {0}};
enum { I_OFFSETS, I_ENDS, I_POSITIONS, I_LSNS, I_MAX_TIMESTAMPS, I_TIMESTAMP_HIGH };
static Layout index_layout = {"headrace.log.index", "TailIndex",
                              {"offsets", "ends", "positions", "lsns", "max_timestamps", "timestamp_high"}, NULL, {0}};
enum { C_VIEW, C_USED };
static Layout chunk_layout = {"headrace.log.arena", "Chunk", {"view", "used"}, NULL, {0}};
enum { G_LSN, G_ROOM, G_PAYLOAD_SIZE, G_IMAGE, G_TABLE, G_ENDS, G_WAITERS };
static Layout group_layout = {"headrace.log.wal.writer", "Group",
                              {"lsn", "room", "payload_size", "image", "table", "ends", "waiters"}, NULL, {0}};
enum { W_OPEN, W_REFUSAL, W_UNFLUSHED, W_IS_SCHEDULED, W_FAR_FROM_FULL };
static Layout wal_layout = {"headrace.log.wal.writer", "WalWriter",
                            {"_open", "_refusal", "unflushed_bytes", "_is_scheduled", "is_far_from_full"}, NULL, {0}};
enum { L_WAL, L_CEILING_MARGIN };
static Layout store_layout = {"headrace.log.store", "LogStore", {"wal", "ceiling_margin"}, NULL, {0}};
enum { S_BY_ID };
static Layout producers_layout = {"headrace.log.producers", "Producers", {"_by_id"}, NULL, {0}};
enum { R_EPOCH, R_BATCHES, R_LAST_TIMESTAMP, R_SEEN };
static Layout producer_layout = {"headrace.log.producers", "Producer",
                                 {"epoch", "batches", "last_timestamp_ms", "seen_ms"}, NULL, {0}};
static Layout sent_batch_layout = {"headrace.log.producers", "SentBatch", {NULL}, NULL, {0}}; /* a tuple */

static Layout *const layouts[] = {&tail_layout,  &index_layout,     &chunk_layout,    &group_layout,      &wal_layout,
                                  &store_layout, &producers_layout, &producer_layout, &sent_batch_layout, &partition_layout};

/* Where a batch goes, all of it read and checked before the first change, and borrowed from the partition: the log belongs
   to the loop's thread, and nothing that is called until the end is the log's. */
typedef struct {
    PyObject *wal, *group, *tail, *index, *chunk, *producer;
    unsigned char *memory, *image;
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
        head == NULL || !PyBytes_Check(head) || PyBytes_GET_SIZE(head) != ENTRY_HEAD_SIZE) {
        return 0;
    }
    place->producer = batch->producer_id != -1 ? continued_producer(partition, batch) : NULL;
    return batch->producer_id == -1 || place->producer != NULL;
}

/* Where `size` bytes go in `view`; NULL where it has no room for them. */
static unsigned char *
memory_at(PyObject *view, int64_t start, Py_ssize_t size)
{
    if (view == NULL || !PyMemoryView_Check(view)) {
        return NULL;
    }
    const Py_buffer *memory = PyMemoryView_GET_BUFFER(view);
    int has_room = !memory->readonly && start >= 0 && start <= memory->len && memory->len - start >= size;
    return has_room ? (unsigned char *)memory->buf + start : NULL;
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
    if (!is_a(&chunk_layout, chunk)) {
        return 0;
    }
    place->used = slot_number(&chunk_layout, chunk, C_USED, &is_good);
    place->position = slot_number(&tail_layout, tail, T_POSITION, &is_good);
    place->timestamp_high = slot_number(&index_layout, place->index, I_TIMESTAMP_HIGH, &is_good);
    place->memory = memory_at(slot(&chunk_layout, chunk, C_VIEW), place->used, size);
    return is_good && place->memory != NULL;
}

static int
find_in_group(PyObject *wal, Py_ssize_t size, Place *place)
{
    int is_good = 1;
    PyObject *group = is_a(&wal_layout, wal) ? slot(&wal_layout, wal, W_OPEN) : NULL;
    if (!is_a(&group_layout, group) || slot(&wal_layout, wal, W_REFUSAL) != Py_None) {
        return 0;
    }
    place->wal = wal;
    place->group = group;
    place->payload_size = slot_number(&group_layout, group, G_PAYLOAD_SIZE, &is_good);
    place->room = slot_number(&group_layout, group, G_ROOM, &is_good);
    place->lsn = slot_number(&group_layout, group, G_LSN, &is_good) + GROUP_HEADER_SIZE + place->payload_size;
    place->unflushed = slot_number(&wal_layout, wal, W_UNFLUSHED, &is_good);
    place->image = memory_at(slot(&group_layout, group, G_IMAGE), GROUP_HEADER_SIZE + place->payload_size, size);
    return is_good && size <= place->room - place->payload_size && place->image != NULL;
}

#endif
