-- What a metastore of format 2 holds, as SQL. Never rewritten: newer code must keep reading it.
PRAGMA application_id = 1212435795;
PRAGMA user_version = 2;
CREATE TABLE item (
  key TEXT PRIMARY KEY,
  value BLOB NOT NULL,
  create_revision INTEGER NOT NULL,
  mod_revision INTEGER NOT NULL,
  version INTEGER NOT NULL,
  lease INTEGER NOT NULL,
  crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE lease (id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES
  ('revision', 6), ('lease', 5), ('identity', 303964512096698840), ('digest', 1549399176);
INSERT INTO lease VALUES (4, 30000);
INSERT INTO item VALUES
  ('/headrace/cluster', X'0A1641414543417751464267634943516F4C4441304F4477', 2, 2, 1, 4, 881236333),
  ('/topics/orders/config', X'0803107F', 3, 5, 2, 0, 3135462128);
