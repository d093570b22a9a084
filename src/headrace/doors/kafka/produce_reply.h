/* The answer to one produce request of `_produce.c`: its place among the connection's answers, and who waits for its records. */

#ifndef HEADRACE_PRODUCE_REPLY_H
#define HEADRACE_PRODUCE_REPLY_H

#include "../../kernel.h"

enum { C_SLOTS, C_IS_ANSWERING, C_PEERS, C_OPEN_TOPICS };
static Layout connection_layout = {"headrace.doors.connection", "FramedConnection",
                                   {"_slots", "_is_answering", "_peers", "_open_topics"}, NULL, {0}};
enum { S_ANSWERING };
static Layout peers_layout = {"headrace.doors.connection_set", "ConnectionSet", {"_answering"}, NULL, {0}};

static PyObject *str_flush_soon; /* set when the module is imported */

typedef struct {
    PyObject_HEAD
    PyObject *connection, *fail, *answer, *chunks, *on_lost;
    PyObject *topics; /* those that were written to, in the order of the request: names may change hands meanwhile */
    PyObject *error;  /* the first one */
    long long expires_ms;
    int pending, version, correlation_id;
} Reply;

/* No `tp_clear`: every cycle through this type also passes through an object that has one. */
static int
reply_traverse(Reply *self, visitproc visit, void *arg)
{
    Py_VISIT(self->connection);
    Py_VISIT(self->fail);
    Py_VISIT(self->chunks);
    Py_VISIT(self->topics);
    Py_VISIT(self->error);
    return 0;
}

static void
reply_dealloc(Reply *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->connection);
    Py_XDECREF(self->fail);
    Py_XDECREF(self->answer);
    Py_XDECREF(self->chunks);
    Py_XDECREF(self->on_lost);
    Py_XDECREF(self->topics);
    Py_XDECREF(self->error);
    PyObject_GC_Del(self);
}

static int
is_first_of(PyObject *slots, PyObject *reply)
{
    PyObject *first = PyObject_Size(slots) > 0 ? PySequence_GetItem(slots, 0) : NULL;
    Py_XDECREF(first);
    return first == reply;
}

/* `FramedConnection.answered`. */
static int
tell_connection(Reply *self)
{
    PyObject *connection = self->connection;
    PyObject *peers = slot(&connection_layout, connection, C_PEERS);
    if (slot(&connection_layout, connection, C_IS_ANSWERING) != Py_False ||
        !is_first_of(slot(&connection_layout, connection, C_SLOTS), (PyObject *)self)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    set_slot(&connection_layout, connection, C_IS_ANSWERING, Py_True);
    PyObject *answering = is_a(&peers_layout, peers) ? slot(&peers_layout, peers, S_ANSWERING) : NULL;
    if (answering != NULL && PyList_Check(answering) && PyList_GET_SIZE(answering)) {
        return PyList_Append(answering, connection); /* The flush is on its way. */
    }
    PyObject *done = PyObject_CallMethodOneArg(peers, str_flush_soon, connection);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *
reply_fill(Reply *self, PyObject *chunks)
{
    if (self->chunks == Py_None) {
        Py_INCREF(chunks);
        Py_SETREF(self->chunks, chunks);
        if (tell_connection(self) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
reply_finish(Reply *self)
{
    if (self->error != NULL && self->error != Py_None) {
        return PyObject_CallFunctionObjArgs(self->fail, (PyObject *)self, self->error, NULL);
    }
    PyObject *chunks = PyTuple_Pack(1, self->answer);
    if (chunks == NULL) {
        return NULL;
    }
    PyObject *done = reply_fill(self, chunks);
    Py_DECREF(chunks);
    return done;
}

static PyObject *
reply_expect_one(Reply *self, PyObject *unused)
{
    self->pending++;
    Py_RETURN_NONE;
}

static PyObject *
reply_settle(Reply *self, PyObject *error)
{
    self->pending--;
    if (error != Py_None && self->error == NULL) {
        Py_INCREF(error);
        self->error = error;
    }
    if (self->pending || self->answer == NULL) {
        Py_RETURN_NONE;
    }
    return reply_finish(self);
}

static PyObject *
reply_on_expiry(Reply *self, PyObject *unused)
{
    return PyObject_CallFunctionObjArgs(self->fail, (PyObject *)self, Py_None, NULL);
}

static PyMethodDef reply_methods[] = {
    {"fill", (PyCFunction)reply_fill, METH_O, "This is the answer. The first one counts."},
    {"expect_one", (PyCFunction)reply_expect_one, METH_NOARGS, "Something has promised to settle this once more."},
    {"settle", (PyCFunction)reply_settle, METH_O, "One of those it waits for is kept (None), or has failed."},
    {"on_expiry", (PyCFunction)reply_on_expiry, METH_NOARGS, "The client's patience is at its end."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef reply_members[] = {
    {"chunks", T_OBJECT, offsetof(Reply, chunks), 0, "The answer, once there is one."},
    {"answer", T_OBJECT, offsetof(Reply, answer), READONLY, "What is answered if all is kept."},
    {"topics", T_OBJECT, offsetof(Reply, topics), READONLY, "Those of the answer, as they were when it was made."},
    {"on_lost", T_OBJECT, offsetof(Reply, on_lost), READONLY, "Nobody needs to know."},
    {"expires_ms", T_LONGLONG, offsetof(Reply, expires_ms), READONLY, NULL},
    {"version", T_INT, offsetof(Reply, version), READONLY, NULL},
    {"correlation_id", T_INT, offsetof(Reply, correlation_id), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject reply_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headrace.doors.kafka._produce.Reply",
    .tp_basicsize = sizeof(Reply),
    .tp_dealloc = (destructor)reply_dealloc,
    .tp_traverse = (traverseproc)reply_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "The slot of one produce request; waits for the log.",
    .tp_methods = reply_methods,
    .tp_members = reply_members,
};

#endif
