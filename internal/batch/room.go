package batch

import "time"

// Limits bound a batch. What its first request needs at the least is always granted.
type Limits struct {
	Count int // of whatever is counted
	Bytes int // of a batch of several requests
	Alone int // bytes of a batch that has one request
}

// A Room is what a batch may have.
type Room struct {
	limits      Limits
	count       int
	bytes       int
	taken, full bool
	shared      bool // by more than one request
	skipped     bool // the request in question
}

// Take takes some of the room, and reports whether there was as much. The first call for a batch
// always succeeds. After one that has failed all others fail, so that no request overtakes another
// one.
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

// Skip leaves a request to a later batch, and lets those behind it overtake it. It returns false.
func (r *Room) Skip() bool {
	r.skipped = true
	return false
}

// Reserve takes bytes that the batch needs besides its requests.
func (r *Room) Reserve(bytes int) { r.bytes += bytes }

// share notes that what is taken from now on is for another request.
func (r *Room) share() { r.shared = true }

// growAfter is how long batches stay small.
const growAfter = time.Minute

// A size is that of the batches to come.
type size struct {
	limits Limits
	bytes  int       // instead of those of the limits, for a while
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
