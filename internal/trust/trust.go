package trust

import (
	"fmt"
	"time"
)

// A Trust computes until when the ensemble can't have expired a session. It uses the times at which
// requests were sent, so a slow answer never prolongs trust. It is not safe for concurrent use.
type Trust struct {
	timeout time.Duration

	// The send time of the latest request that was
	contact   time.Time // answered at all
	confirmed time.Time // answered by the leader
	agreed    time.Time // agreed to by a quorum
	carried   time.Time // certain to be known to the leader

	troubled time.Time     // when an answer was last late, or the session was resumed
	took     time.Duration // how long the latest answer of a quorum took

	// reports are answered requests that the leader may not know yet. The oldest comes first, and
	// they are at least a sample apart. (If they are older than a few times the share reported,
	// they no longer matter.)
	reports []report
}

// A report is a contact with a follower, which reports it to the leader.
type report struct{ sent, answered time.Time }

const maxReports = 48

// Began notes that the session began (a quorum agrees to that) or was resumed (the leader takes
// part), and which timeout was granted. sent is when the connection was dialled.
func (t *Trust) Began(sent time.Time, timeout time.Duration) {
	t.timeout = timeout
	// Only the start of a session takes a quorum. A resumption takes the leader.
	if t.agreed.IsZero() {
		t.agreed = sent
	} else {
		t.troubled = sent
	}
	t.contact, t.confirmed, t.carried = sent, sent, sent
	t.reports = t.reports[:0]
}

// Answered notes that a request, sent at one time, was answered at another.
func (t *Trust) Answered(sent, at time.Time, by Witness) {
	t.contact = Later(t.contact, sent)
	if at.Sub(sent) > Prompt.Of(t.timeout) {
		t.troubled = at
	}
	if by == Quorum {
		t.agreed, t.took = Later(t.agreed, sent), at.Sub(sent)
	}

	if by != Member {
		t.confirmed = Later(t.confirmed, sent)
		// The leader knows the contacts answered before the horizon: their reports came before this
		// request, over the same connection.
		horizon := sent.Add(-reported.Of(t.timeout))
		n := 0
		for n < len(t.reports) && !t.reports[n].answered.After(horizon) {
			t.carried = t.reports[n].sent
			n++
		}

		t.reports = append(t.reports[:0], t.reports[n:]...)
	}

	if n := len(t.reports); n > 0 && sent.Sub(t.reports[n-1].sent) < sample.Of(t.timeout) {
		return
	} else if n == maxReports {
		t.reports = append(t.reports[:0], t.reports[1:]...)
	}

	t.reports = append(t.reports, report{sent, at})
}

// Deadline returns when trust runs out if no more answers come.
func (t *Trust) Deadline() time.Time {
	return Earlier(
		t.confirmed.Add(trusted.Of(t.timeout)),
		Earlier(t.carried, t.agreed).Add((1 - drift).Of(t.timeout)))
}

// Renewable reports whether a resumption would move the deadline. (A resumption doesn't renew
// agreed.)
func (t *Trust) Renewable() bool {
	return t.Deadline().Before(t.agreed.Add((1 - drift).Of(t.timeout)))
}

// Fresh reports whether the session can be granted a lock now, without a request that renews trust.
func (t *Trust) Fresh(now time.Time) bool {
	return !t.Over(now) &&
		(t.Deadline().Sub(now) >= fresh.Of(t.timeout) || now.Sub(t.agreed) < Prompt.Of(t.timeout))
}

// Over reports whether trust has run out.
func (t *Trust) Over(now time.Time) bool {
	return Elapsed(t.confirmed, now) >= trusted.Of(t.timeout) ||
		Elapsed(Earlier(t.carried, t.agreed), now) >= (1-drift).Of(t.timeout)
}

// Lapse returns, as text, why trust has run out. Call it only once trust has run out.
func (t *Trust) Lapse(now time.Time) string {
	since, what := t.carried, "the leader need not have heard from it"
	switch {
	case Elapsed(t.confirmed, now) >= trusted.Of(t.timeout):
		since, what = t.confirmed, "the leader has not answered"
	case t.agreed.Before(t.carried):
		since, what = t.agreed, "no quorum has agreed to a write"
	}
	return fmt.Sprintf("%s for %v, so the ensemble may have expired it", what, Elapsed(since, now).Round(time.Millisecond))
}

// Due returns when the next request that renews trust is due, and whether it must be a write. While
// a write is under way, the request need not be a write.
//
// The leader is certain to know a contact only if a request is sent the share reported after the
// contact was answered. Requests the share syncs apart are in time for that if answers are prompt.
// If answers are late, or contacts are as far apart as pings, waiting for the next request would
// leave less trust. So the request is sent as soon as it makes the contact certain.
func (t *Trust) Due(now time.Time, writing bool) (at time.Time, write bool) {
	pace := Share(1)
	if now.Sub(t.troubled) < t.timeout/2 {
		pace = trouble
	}

	at = t.confirmed.Add((pace * syncs).Of(t.timeout))
	// A usual gap closes by itself with the next request.
	if usual := (reported + Prompt + sample).Of(t.timeout); len(t.reports) > 0 && t.confirmed.Sub(t.carried) > usual {
		at = Earlier(at, t.reports[0].answered.Add(reported.Of(t.timeout)))
	}

	// A resumption doesn't renew agreed, so there must be time for a write after it.
	w := t.agreed.Add((pace * writes).Of(t.timeout) - min(t.took, Prompt.Of(t.timeout)))
	write = !writing && !w.After(at.Add(sample.Of(t.timeout)))
	if write {
		at = Earlier(at, w)
	}

	return at, write
}

// Silent reports whether no answer at all came for a whole timeout.
func (t *Trust) Silent(now time.Time) bool { return Elapsed(t.contact, now) >= t.timeout }

// SilentAt returns when Silent will report true if no more answers come.
func (t *Trust) SilentAt() time.Time { return t.contact.Add(t.timeout) }

// Timeout returns the session timeout granted last, or 0 before the first handshake.
func (t *Trust) Timeout() time.Duration { return t.timeout }

// Heard returns how long ago the latest answered request was sent.
func (t *Trust) Heard(now time.Time) time.Duration { return Elapsed(t.contact, now) }

// Confirmed returns the send time of the latest request that the leader answered.
func (t *Trust) Confirmed() time.Time { return t.confirmed }

// Agreed returns how long ago the latest request was sent that a quorum has agreed to.
func (t *Trust) Agreed(now time.Time) time.Duration { return Elapsed(t.agreed, now) }
