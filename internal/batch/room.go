package batch

import "time"

// Limits bound a batch. A batch's first request always gets the least that it needs.
type Limits struct {
	Count int // how many (of whatever the caller counts)
	Bytes int // of a batch with several requests
	Alone int // of a batch with one request
}

// A Room is the room that a batch still has.
type Room struct {
	limits      Limits
	count       int
	bytes       int
	taken, full bool
	shared      bool // more than one request uses it
	skipped     bool // the current request was skipped
}

// Take takes some of the room, and reports whether there was enough. The first call for a batch
// always succeeds. After a failed call all further calls fail, so that no request overtakes
// another.
func (r *Room) Take(count, bytes int) bool {
	most := r.limits.Alone
	if r.shared {
		most = r.limits.Bytes
	}
	if r.taken && (r.count+count > r.limits.Count || r.bytes+bytes > most) {
		r.full = true
	}
	if r.full {
		return false
	}

	r.count, r.bytes, r.taken = r.count+count, r.bytes+bytes, true
	return true
}

// Skip leaves a request to a later batch and lets the requests behind it overtake it. It returns
// false.
func (r *Room) Skip() bool {
	r.skipped = true
	return false
}

// Reserve takes bytes that the batch needs besides its requests.
func (r *Room) Reserve(bytes int) { r.bytes += bytes }

// share begins the next request.
func (r *Room) share() { r.shared = true }

// growAfter is how long batches stay small.
const growAfter = time.Minute

// A size is the size of future batches.
type size struct {
	limits Limits
	bytes  int       // instead of the limits' bytes, for a while
	shrunk time.Time // zero if it never was
}

func (s *size) room() *Room {
	limits := s.limits
	if s.small() {
		limits.Bytes, limits.Alone = s.bytes, s.bytes
	}
	return &Room{limits: limits}
}

func (s *size) small() bool { return !s.shrunk.IsZero() && time.Since(s.shrunk) < growAfter }

func (s *size) shrink() {
	if !s.small() {
		s.bytes = s.limits.Bytes
	}
	s.bytes, s.shrunk = s.bytes/2, time.Now()
}
