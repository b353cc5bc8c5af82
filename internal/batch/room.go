package batch

// Limits bound a batch of several requests. A single request always fits.
type Limits struct {
	Count int // of whatever is counted
	Bytes int
}

// A Room is what a batch may have.
type Room struct {
	limits       Limits
	count, bytes int
	skipped      bool // the request in question
}

// Take takes what one request needs, and reports whether there was as much. The first request of a
// batch gets what it needs.
func (r *Room) Take(count, bytes int) bool {
	if r.count > 0 && (r.count+count > r.limits.Count || r.bytes+bytes > r.limits.Bytes) {
		return false
	}
	r.count, r.bytes = r.count+count, r.bytes+bytes
	return true
}

// Skip leaves a request to a later batch, and lets those behind it overtake it. It returns false.
func (r *Room) Skip() bool {
	r.skipped = true
	return false
}
