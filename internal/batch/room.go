package batch

// Limits bound a batch of several requests. A single request always fits.
type Limits struct {
	Count int // in the caller's unit (operations, for example)
	Bytes int
}

// A Room is the space that is left in a batch.
type Room struct {
	limits       Limits
	count, bytes int
	skipped      bool // the request in question
}

// Take takes room for a request and reports whether there was enough. The first request of a batch
// always gets enough.
func (r *Room) Take(count, bytes int) bool {
	if r.count > 0 && (r.count+count > r.limits.Count || r.bytes+bytes > r.limits.Bytes) {
		return false
	}
	r.count, r.bytes = r.count+count, r.bytes+bytes
	return true
}

// Skip leaves a request to a later batch, so that later requests overtake it. It returns false.
func (r *Room) Skip() bool {
	r.skipped = true
	return false
}
