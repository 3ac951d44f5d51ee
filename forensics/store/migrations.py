"""The schema, as it came to be. Append an entry to change it; those that are here stay as they are."""

# Each entry brings the schema from version i to i+1; `user_version` says how many have been done.
MIGRATIONS = (
    """
    CREATE TABLE runs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        invocation_id TEXT NOT NULL UNIQUE,
        unit TEXT NOT NULL,
        is_crash INTEGER NOT NULL,
        cause TEXT NOT NULL,
        family TEXT NOT NULL,
        strength TEXT,
        phase TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        died_at_usec INTEGER NOT NULL,
        saved_at_usec INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        backfilled INTEGER NOT NULL,
        run TEXT NOT NULL,
        verdict TEXT NOT NULL,
        timeline BLOB NOT NULL
    ) STRICT;
    -- Every filter is in it, so that a list walks it in order and looks up only the rows that it shows.
    CREATE INDEX runs_newest ON runs (
        is_crash, died_at_usec DESC, seq DESC, unit, cause, family, strength, phase, fingerprint
    );
    CREATE INDEX runs_of_unit ON runs (unit, died_at_usec DESC, seq DESC, is_crash);

    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        invocation_id TEXT NOT NULL REFERENCES runs (invocation_id) ON DELETE CASCADE,
        revision INTEGER NOT NULL,
        sink TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'superseded', 'abandoned')),
        attempts INTEGER NOT NULL DEFAULT 0,
        next_try_usec INTEGER NOT NULL,
        last_error TEXT NOT NULL DEFAULT '',
        created_usec INTEGER NOT NULL,
        delivered_usec INTEGER,
        UNIQUE (invocation_id, sink, revision)
    ) STRICT;
    CREATE INDEX outbox_waiting ON outbox (sink, next_try_usec) WHERE state = 'waiting';
    CREATE INDEX outbox_states ON outbox (sink, state);

    CREATE TABLE checkpoint (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        cursor TEXT NOT NULL,
        realtime_usec INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE tracked_runs (
        invocation_id TEXT PRIMARY KEY,
        unit TEXT NOT NULL,
        first_realtime_usec INTEGER NOT NULL,
        has_ended INTEGER NOT NULL,
        data TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tracked_events (
        id INTEGER PRIMARY KEY,
        invocation_id TEXT NOT NULL,
        data TEXT NOT NULL
    ) STRICT;
    """,
    """
    ALTER TABLE runs ADD COLUMN became_ready INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN configuration TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE runs ADD COLUMN history TEXT NOT NULL DEFAULT 'null';
    UPDATE runs SET became_ready = coalesce(verdict ->> '$.became_ready', 0);
    """,
    """
    CREATE INDEX runs_alike ON runs (unit, fingerprint, died_at_usec) WHERE is_crash;
    CREATE INDEX runs_served ON runs (unit, died_at_usec) WHERE became_ready;
    """,
    """
    ALTER TABLE runs ADD COLUMN facts TEXT NOT NULL DEFAULT '';
    CREATE INDEX runs_ended ON runs (died_at_usec DESC, seq DESC);
    """,
    """
    CREATE TABLE lives (
        invocation_id TEXT PRIMARY KEY REFERENCES runs (invocation_id) ON DELETE CASCADE,
        unit TEXT NOT NULL,
        started_at_usec INTEGER NOT NULL,
        ready_at_usec INTEGER,
        stopping_at_usec INTEGER,
        ended_at_usec INTEGER NOT NULL,
        is_crash INTEGER NOT NULL,
        became_ready INTEGER NOT NULL,
        restarted INTEGER NOT NULL,
        cause TEXT NOT NULL,
        family TEXT NOT NULL,
        strength TEXT,
        phase TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        summary TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX lives_ended ON lives (unit, ended_at_usec);
    CREATE INDEX runs_configured ON runs (unit, died_at_usec DESC, seq DESC) WHERE configuration != '{}';
    CREATE INDEX lives_alike ON lives (is_crash, fingerprint, ended_at_usec, unit, cause, family);
    INSERT INTO lives SELECT invocation_id, unit, died_at_usec - (run ->> '$.ended_usec') + (run ->> '$.started_usec'),
        NULL, NULL, died_at_usec, is_crash, became_ready, 0, cause, family, strength, phase, fingerprint,
        coalesce(verdict ->> '$.summary', '') FROM runs;

    CREATE TABLE news (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL CHECK (kind IN ('crash', 'amended', 'run-started', 'run-ended')),
        invocation_id TEXT NOT NULL,
        unit TEXT NOT NULL,
        at_usec INTEGER NOT NULL
    ) STRICT;
    -- Numbers are of this store: a new file begins again, and must not be taken for the old one.
    CREATE TABLE identity (one INTEGER PRIMARY KEY CHECK (one = 1), token TEXT NOT NULL) STRICT;
    INSERT INTO identity VALUES (1, lower(hex(randomblob(4))));
    -- Counters that only rise, whatever is pruned, corrected or restarted.
    CREATE TABLE tallies (
        name TEXT NOT NULL,
        unit TEXT NOT NULL,
        label TEXT NOT NULL,
        family TEXT NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (name, unit, label, family)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO tallies SELECT 'crashes', unit, cause, family, count(*) FROM runs WHERE is_crash GROUP BY 2, 3, 4;
    """,
    """
    ALTER TABLE lives ADD COLUMN gave_up INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE tracked_runs ADD COLUMN ready_usec INTEGER;

    -- News of any kind, those of a living run with their own data.
    CREATE TABLE all_news (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        invocation_id TEXT NOT NULL,
        unit TEXT NOT NULL,
        at_usec INTEGER NOT NULL,
        details TEXT NOT NULL DEFAULT '{}'
    ) STRICT;
    INSERT INTO all_news (id, kind, invocation_id, unit, at_usec)
        SELECT id, kind, invocation_id, unit, at_usec FROM news;
    UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'news') WHERE name = 'all_news';
    DROP TABLE news;
    ALTER TABLE all_news RENAME TO news;

    -- Messages, each with what it tells: repeats are gathered in one, and a server can be back before it is told.
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        sink TEXT NOT NULL,
        unit TEXT NOT NULL,
        kind TEXT NOT NULL,
        about TEXT REFERENCES runs (invocation_id) ON DELETE CASCADE,
        revision INTEGER NOT NULL,
        fingerprint TEXT NOT NULL,
        count INTEGER NOT NULL,
        since_usec INTEGER NOT NULL,
        until_usec INTEGER NOT NULL,
        back_usec INTEGER NOT NULL,
        down INTEGER NOT NULL,
        details TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'superseded', 'abandoned')),
        attempts INTEGER NOT NULL DEFAULT 0,
        due_usec INTEGER NOT NULL,
        next_try_usec INTEGER NOT NULL,
        holds_up INTEGER NOT NULL DEFAULT 1,
        last_error TEXT NOT NULL DEFAULT '',
        created_usec INTEGER NOT NULL,
        delivered_usec INTEGER
    ) STRICT;
    INSERT INTO messages SELECT outbox.id, sink, unit, iif(outbox.revision = 1, 'crash', 'amended'),
        outbox.invocation_id, outbox.revision, fingerprint, 1, died_at_usec, died_at_usec, 0, is_crash,
        json_object('cause', cause, 'family', family), state, attempts, created_usec, next_try_usec, 1, last_error,
        created_usec, delivered_usec FROM outbox JOIN runs USING (invocation_id);
    DROP TABLE outbox;
    ALTER TABLE messages RENAME TO outbox;
    CREATE INDEX outbox_waiting ON outbox (sink, unit, due_usec, id) WHERE state = 'waiting';
    CREATE INDEX outbox_told ON outbox (sink, unit, id);
    CREATE INDEX outbox_about ON outbox (about);
    CREATE INDEX outbox_states ON outbox (sink, state);
    """,
)
