package trust

import "time"

// A Share is a part of the granted session timeout. Trust is counted in twelfths of the timeout:
// see the package documentation.
type Share float64

// Of returns this part of a timeout.
func (s Share) Of(timeout time.Duration) time.Duration {
	return time.Duration(float64(timeout) * float64(s))
}

// Code that keeps trust fresh uses these shares.
const (
	Silence Share = 2.0 / 12        // how long a request that renews trust, or a resumption, may stay unanswered
	Prompt  Share = 0.5 / 12        // an answer that takes longer is late
	Soon    Share = trouble * syncs // between requests that renew trust while answers are late
	Last    Share = 0.5 / 12        // in reserve for a last resumption
	Redial  Share = 0.25 / 12       // from an accepted connection to the next connection but one
)

const (
	reported Share = 4.0 / 12  // until a follower has reported a contact: half a tick (3/12 at most), and 1/12 for a late ping
	drift    Share = 1.0 / 12  // in reserve for clock rates
	trusted  Share = 8.0 / 12  // how long trust lasts after a request that the leader answered
	syncs    Share = 1.5 / 12  // between requests that the leader answers
	writes   Share = 6.0 / 12  // between requests that a quorum agrees to
	fresh    Share = 3.0 / 12  // how long a new grant is trusted, if a request can bring that about
	sample   Share = 0.25 / 12 // between two reports
)

// trouble is the factor between the usual pause and a shorter pause: requests that renew trust are
// sent more often while answers are late, after a resumption, and for half a timeout after either.
const trouble = 0.5
