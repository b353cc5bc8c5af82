package protocol

import "context"

// Turns has those who share it in their [Bid] stand in line one at a time, so that all of them have one node there at
// most; the others wait in this process, first come, first served. When what was granted is over the next one goes to
// the end of the line. So whoever else is in line gets its turn in between; and if nobody is, the next one's request
// to come in follows the last one's to leave, and both share a round trip. After the loss of a session
// those who wait go on in the next one, in any order. It is safe for concurrent use. Make one with [NewTurns].
type Turns chan struct{}

// NewTurns returns turns of which none is taken.
func NewTurns() Turns { return make(Turns, 1) }

// take waits for the caller's turn.
func (t Turns) take(ctx context.Context, s *Session, try bool) error {
	if t == nil {
		return nil
	}
	if try {
		select {
		case t <- struct{}{}:
			return nil
		default:
			return ErrBusy
		}
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-s.Done():
	case <-ctx.Done():
	}
	return s.ended(ctx)
}

// endWith ends the turn with the grant that has come of it, or now if there is none.
func (t Turns) endWith(g *Grant) {
	switch {
	case t == nil:
	case g == nil:
		<-t
	default:
		context.AfterFunc(g.life, func() { <-t })
	}
}
