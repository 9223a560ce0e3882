-- +goose Up
-- 0x43524446 = "CRDF": this file is Cordon's. user_version is the schema
-- version that Open checks before anything else.
PRAGMA application_id = 1129464902;
PRAGMA user_version = 1;

CREATE TABLE run_sandboxes (
    run_id       TEXT PRIMARY KEY,
    tenant_id    TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    agent_id     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    policy_id    TEXT NOT NULL,
    tier         TEXT NOT NULL,
    profile      TEXT NOT NULL,
    mode         TEXT NOT NULL,
    policy_json  TEXT NOT NULL,
    policy_hash  TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    row_hash     TEXT NOT NULL
) STRICT;
CREATE INDEX run_sandboxes_created ON run_sandboxes (created_at);

CREATE TABLE sandbox_violations (
    seq               INTEGER PRIMARY KEY,
    id                TEXT NOT NULL UNIQUE,
    tenant_id         TEXT NOT NULL,
    workspace_id      TEXT NOT NULL,
    agent_id          TEXT NOT NULL,
    user_id           TEXT NOT NULL,
    session_id        TEXT NOT NULL,
    run_id            TEXT NOT NULL REFERENCES run_sandboxes (run_id),
    timestamp         TEXT NOT NULL,
    created_at        TEXT NOT NULL,
    policy_id         TEXT NOT NULL,
    phase             TEXT NOT NULL,
    decision          TEXT NOT NULL CHECK (decision IN ('restricted', 'blocked')),
    tool_name         TEXT NOT NULL,
    violation_type    TEXT NOT NULL,
    violation_detail  TEXT NOT NULL,
    args_hash         TEXT NOT NULL,
    enforced          INTEGER NOT NULL CHECK (enforced IN (0, 1)),
    killrun_triggered INTEGER NOT NULL CHECK (killrun_triggered IN (0, 1) AND killrun_triggered <= enforced),
    metadata_json     TEXT NOT NULL CHECK (json_valid(metadata_json)),
    prev_hash         TEXT NOT NULL,
    row_hash          TEXT NOT NULL
) STRICT;
CREATE INDEX sandbox_violations_run ON sandbox_violations (run_id, seq);
CREATE INDEX sandbox_violations_time ON sandbox_violations (timestamp);

-- The end of the chain, in one row.
CREATE TABLE audit_head (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    seq  INTEGER NOT NULL,
    hash TEXT NOT NULL
) STRICT;
INSERT INTO audit_head VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- Calls without a row of their own, by the hour ("2006-01-02T15").
CREATE TABLE call_counters (
    run_id  TEXT NOT NULL,
    tool    TEXT NOT NULL,
    tier    TEXT NOT NULL,
    outcome TEXT NOT NULL,
    hour    TEXT NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (run_id, tool, tier, outcome, hour)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_usage (
    run_id        TEXT PRIMARY KEY,
    tool_calls    INTEGER NOT NULL,
    exec_seconds  REAL NOT NULL,
    bytes_written INTEGER NOT NULL,
    cost_usd      REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE run_kills (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT NOT NULL,
    tenant_id   TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    at          TEXT NOT NULL,
    rule        TEXT NOT NULL,
    released_at TEXT NOT NULL,
    released_by TEXT NOT NULL,
    why         TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX run_kills_standing ON run_kills (run_id) WHERE released_at = '';
CREATE INDEX run_kills_run ON run_kills (run_id);

CREATE TABLE tool_pins (
    server             TEXT NOT NULL,
    tool               TEXT NOT NULL,
    hash               TEXT NOT NULL,
    approved_at        TEXT NOT NULL,
    definition         TEXT NOT NULL,
    pending_hash       TEXT NOT NULL,
    pending_at         TEXT NOT NULL,
    pending_definition TEXT NOT NULL,
    PRIMARY KEY (server, tool)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE tool_pins;
DROP TABLE run_kills;
DROP TABLE run_usage;
DROP TABLE call_counters;
DROP TABLE audit_head;
DROP TABLE sandbox_violations;
DROP TABLE run_sandboxes;
PRAGMA user_version = 0;
