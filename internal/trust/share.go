package trust

import "time"

// A Share is a part of the granted session timeout. Trust is counted in twelfths of that: see the
// package documentation.
type Share float64

// Of returns this part of a timeout.
func (s Share) Of(timeout time.Duration) time.Duration {
	return time.Duration(float64(timeout) * float64(s))
}

// These are for those who keep trust fresh.
const (
	Silence Share = 2.0 / 12        // a request that renews trust, or a resumption, may stay unanswered
	Prompt  Share = 0.5 / 12        // an answer that takes longer is late
	Soon    Share = trouble * syncs // between requests that renew trust, while answers are late
	Last    Share = 0.5 / 12        // in reserve for a last resumption
	Redial  Share = 0.25 / 12       // from a connection that a server has accepted to the next but one
)

const (
	reported Share = 4.0 / 12  // a follower has reported a contact: half a tick, which is 3 at most, and 1 for a late ping
	drift    Share = 1.0 / 12  // in reserve for clock rates
	trusted  Share = 8.0 / 12  // trust lasts from a request that the leader has answered
	syncs    Share = 1.5 / 12  // between requests that the leader answers
	writes   Share = 6.0 / 12  // between requests that a quorum agrees to
	fresh    Share = 3.0 / 12  // what is granted is trusted for this long, if a request can bring that about
	sample   Share = 0.25 / 12 // between two reports
)

// trouble is how far apart requests are that renew trust, in relation to other times, while answers
// are late and for half a timeout after that. So it is after a resumption.
const trouble = 0.5
