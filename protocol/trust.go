package protocol

import (
	"fmt"
	"time"
)

// Trust is counted in twelfths of the granted session timeout: see "Trust" in the package
// documentation.
const (
	reportShare  = 4.0 / 12  // a follower has reported a contact: half a tick, which is 3 at most, and 1 for a late ping
	driftShare   = 1.0 / 12  // in reserve for clock rates
	trustShare   = 8.0 / 12  // trust lasts from a request that the leader has answered
	syncShare    = 1.5 / 12  // between requests that the leader answers
	writeShare   = 6.0 / 12  // between requests that a quorum agrees to
	promptShare  = 0.5 / 12  // an answer that takes longer is late
	freshShare   = 3.0 / 12  // what is granted is trusted for this long, if a request can bring that about
	silenceShare = 2.0 / 12  // such a request, or the resumption of a session, may stay unanswered
	lastShare    = 0.5 / 12  // in reserve for a last resumption
	redialShare  = 0.25 / 12 // from a connection that a server has accepted to the next but one
	sampleShare  = 0.25 / 12 // between two reports
)

// trouble is how far apart requests are that renew trust, in relation to other times, while answers
// are late and for half a timeout after that. So it is after a resumption.
const trouble = 0.5

// A confirmation says which members took part in an answer.
type confirmation int

const (
	byServer confirmation = iota // the server that the session is connected to
	byLeader                     // and the member that this server takes for the leader
	byQuorum                     // and a quorum
)

// share returns a part of the timeout.
func share(timeout time.Duration, part float64) time.Duration {
	return time.Duration(float64(timeout) * part)
}

// elapsed returns the time from since to now, by the clock that went further. The monotonic clock
// stops while the machine sleeps, and the wall clock can be set back.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// A trust computes until when the ensemble cannot have expired a session. Its times are those at
// which requests were sent, so a slow answer never prolongs it. It is not safe for concurrent use.
type trust struct {
	timeout time.Duration

	// The send time of the latest request that was
	contact   time.Time // answered at all
	confirmed time.Time // answered by the leader
	agreed    time.Time // agreed to by a quorum
	carried   time.Time // certain to be known to the leader

	troubled time.Time     // when an answer last was late, or the session was resumed
	took     time.Duration // the time that the latest answer of a quorum took

	// reports are answered requests that the leader may not know of yet, oldest first, and at least
	// a sampleShare apart. Those that are older than a few reportShares no longer matter.
	reports []report
}

// A report is a contact with a follower, which tells the leader of it.
type report struct{ sent, answered time.Time }

const maxReports = 48

// began notes the start of a session, which a quorum agrees to, or its resumption, in which the
// leader takes part.
func (t *trust) began(sent time.Time) {
	if t.agreed.IsZero() {
		t.agreed = sent
	} else {
		t.troubled = sent
	}
	t.contact, t.confirmed, t.carried = sent, sent, sent
	t.reports = t.reports[:0]
}

// answered notes that a request which was sent at one moment was answered at another.
func (t *trust) answered(sent, at time.Time, by confirmation) {
	t.contact = later(t.contact, sent)
	if at.Sub(sent) > share(t.timeout, promptShare) {
		t.troubled = at
	}
	if by == byQuorum {
		t.agreed, t.took = later(t.agreed, sent), at.Sub(sent)
	}
	if by != byServer {
		t.confirmed = later(t.confirmed, sent)
		horizon := sent.Add(-share(t.timeout, reportShare))
		n := 0
		for n < len(t.reports) && !t.reports[n].answered.After(horizon) {
			t.carried = t.reports[n].sent
			n++
		}
		t.reports = append(t.reports[:0], t.reports[n:]...)
	}

	if n := len(t.reports); n > 0 && sent.Sub(t.reports[n-1].sent) < share(t.timeout, sampleShare) {
		return
	} else if n == maxReports {
		t.reports = append(t.reports[:0], t.reports[1:]...)
	}
	t.reports = append(t.reports, report{sent, at})
}

// deadline returns when trust runs out if nothing more is heard.
func (t *trust) deadline() time.Time {
	return earlier(
		t.confirmed.Add(share(t.timeout, trustShare)),
		earlier(t.carried, t.agreed).Add(share(t.timeout, 1-driftShare)))
}

// renewable reports whether a resumption would move the deadline on, which does not renew agreed.
func (t *trust) renewable() bool {
	return t.deadline().Before(t.agreed.Add(share(t.timeout, 1-driftShare)))
}

// fresh reports whether something may be granted now, without a request that would make trust last
// longer.
func (t *trust) fresh(now time.Time) bool {
	return !t.over(now) &&
		(t.deadline().Sub(now) >= share(t.timeout, freshShare) || now.Sub(t.agreed) < share(t.timeout, promptShare))
}

// over reports whether trust has run out.
func (t *trust) over(now time.Time) bool {
	return elapsed(t.confirmed, now) >= share(t.timeout, trustShare) ||
		elapsed(earlier(t.carried, t.agreed), now) >= share(t.timeout, 1-driftShare)
}

// lapse returns why trust has run out, as a text. Trust must be over.
func (t *trust) lapse(now time.Time) string {
	since, what := t.carried, "the leader need not have heard from it"
	switch {
	case elapsed(t.confirmed, now) >= share(t.timeout, trustShare):
		since, what = t.confirmed, "the leader has not answered"
	case t.agreed.Before(t.carried):
		since, what = t.agreed, "no quorum has agreed to a write"
	}
	return fmt.Sprintf("%s for %v, so the ensemble may have expired it", what, elapsed(since, now).Round(time.Millisecond))
}

// due returns when the next request is due that renews trust, and whether it must be a write. While
// a write is under way it need not be one.
//
// A contact becomes certain to be known to the leader only if a request is sent a reportShare after
// it was answered. Requests a syncShare apart are in time for that if answers are prompt. If they
// are not, or contacts are as far apart as pings, waiting for the next one would leave less trust.
func (t *trust) due(now time.Time, writing bool) (at time.Time, write bool) {
	pace := 1.0
	if now.Sub(t.troubled) < t.timeout/2 {
		pace = trouble
	}
	at = t.confirmed.Add(share(t.timeout, pace*syncShare))
	if usual := share(t.timeout, reportShare+promptShare+sampleShare); len(t.reports) > 0 && t.confirmed.Sub(t.carried) > usual {
		at = earlier(at, t.reports[0].answered.Add(share(t.timeout, reportShare)))
	}

	// A resumption leaves agreed as it is, so there must be time for a write after it.
	w := t.agreed.Add(share(t.timeout, pace*writeShare) - min(t.took, share(t.timeout, promptShare)))
	write = !writing && !w.After(at.Add(share(t.timeout, sampleShare)))
	if write {
		at = earlier(at, w)
	}
	return at, write
}

// silent reports whether nothing at all was heard for a whole timeout.
func (t *trust) silent(now time.Time) bool { return elapsed(t.contact, now) >= t.timeout }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
