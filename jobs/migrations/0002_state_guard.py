"""The database's own guard: illegal moves are refused and every move is written down, whoever makes it."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION jobs_guard_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.claim_no < OLD.claim_no THEN
        RAISE EXCEPTION 'job %: claim_no % would fall to %', OLD.id, OLD.claim_no, NEW.claim_no
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_claim_no_monotonic';
    END IF;
    IF NEW.state <> OLD.state AND NOT (
        (OLD.state = 'queued' AND NEW.state IN ('running', 'cancelled'))
        OR (OLD.state = 'running' AND NEW.state IN ('succeeded', 'failed', 'cancelled', 'queued'))
        OR (OLD.state IN ('failed', 'cancelled') AND NEW.state = 'queued')
    ) THEN
        RAISE EXCEPTION 'job %: % -> % is not allowed', OLD.id, OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_state_transition';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER jobs_guard_state BEFORE UPDATE OF state, claim_no ON jobs_job
    FOR EACH ROW EXECUTE FUNCTION jobs_guard_state();

CREATE FUNCTION jobs_record_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO jobs_jobevent (job_id, at, from_state, to_state, reason, attempt)
    VALUES (NEW.id, clock_timestamp(), CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, NEW.state, NEW.reason, NEW.attempts);
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_record_created AFTER INSERT ON jobs_job
    FOR EACH ROW EXECUTE FUNCTION jobs_record_event();
CREATE TRIGGER jobs_record_moved AFTER UPDATE OF state ON jobs_job
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION jobs_record_event();

CREATE FUNCTION jobs_event_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job events are never changed' USING ERRCODE = 'check_violation', CONSTRAINT = 'job_event_immutable';
END $$;

CREATE TRIGGER jobs_event_is_immutable BEFORE UPDATE ON jobs_jobevent
    FOR EACH ROW EXECUTE FUNCTION jobs_event_is_immutable();
"""

BACKWARD = """
DROP TRIGGER jobs_event_is_immutable ON jobs_jobevent;
DROP FUNCTION jobs_event_is_immutable;
DROP TRIGGER jobs_record_moved ON jobs_job;
DROP TRIGGER jobs_record_created ON jobs_job;
DROP FUNCTION jobs_record_event;
DROP TRIGGER jobs_guard_state ON jobs_job;
DROP FUNCTION jobs_guard_state;
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
