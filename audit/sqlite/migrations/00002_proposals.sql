-- +goose Up
PRAGMA user_version = 2;

-- Calls that wait for a person. Only state and expires_at change.
CREATE TABLE proposals (
    id          TEXT PRIMARY KEY,
    tenant_id   TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    agent_id    TEXT NOT NULL,
    server      TEXT NOT NULL,
    tool        TEXT NOT NULL,
    args_hash   TEXT NOT NULL,
    tool_hash   TEXT NOT NULL,
    policy_hash TEXT NOT NULL,
    args        TEXT NOT NULL,
    args_bytes  INTEGER NOT NULL,
    reason      TEXT NOT NULL,
    chunks      TEXT NOT NULL CHECK (json_valid(chunks)),
    created_at  TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'rejected', 'expired', 'executed', 'failed', 'cancelled')),
    expires_at  TEXT NOT NULL
) STRICT;
CREATE INDEX proposals_run ON proposals (run_id, state);
CREATE INDEX proposals_tenant ON proposals (tenant_id, state, expires_at);
CREATE INDEX proposals_created ON proposals (created_at);

-- Every change of a proposal's state, chained by hash.
CREATE TABLE proposal_events (
    seq         INTEGER PRIMARY KEY,
    proposal_id TEXT NOT NULL REFERENCES proposals (id),
    state       TEXT NOT NULL,
    at          TEXT NOT NULL,
    actor       TEXT NOT NULL,
    why         TEXT NOT NULL,
    expires_at  TEXT NOT NULL,
    prev_hash   TEXT NOT NULL,
    row_hash    TEXT NOT NULL
) STRICT;
CREATE INDEX proposal_events_proposal ON proposal_events (proposal_id, seq);

-- What provenance keeps of the texts in a run's context. upto is the size of
-- all chunks of the run up to this one, so that the oldest beyond a bound are
-- found without adding up.
CREATE TABLE run_chunks (
    run_id   TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    chunk_id TEXT NOT NULL,
    type     TEXT NOT NULL,
    trust    INTEGER NOT NULL CHECK (trust IN (0, 1, 2)),
    source   TEXT NOT NULL,
    at       TEXT NOT NULL,
    upto     INTEGER NOT NULL,
    segment  BLOB NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT;
CREATE INDEX run_chunks_upto ON run_chunks (run_id, upto);
CREATE INDEX run_chunks_id ON run_chunks (run_id, chunk_id);

-- +goose Down
DROP TABLE run_chunks;
DROP TABLE proposal_events;
DROP TABLE proposals;
PRAGMA user_version = 1;
