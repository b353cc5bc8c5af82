package recipetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A History is what many saw of something that one of them has at a time. Its zero value is ready for use.
type History struct {
	mu    sync.Mutex // protects what follows
	began time.Time
	ops   []porcupine.Operation
}

// A turn begins when something is granted with a token, and is over later.
type turn struct {
	granted bool // or else: over
	token   int64
}

// Granted notes that a client was granted something between two moments.
func (h *History) Granted(client int, token int64, call, end time.Time) {
	h.add(client, turn{true, token}, call, end)
}

// Over notes that what a client was granted was over at some moment between two.
func (h *History) Over(client int, token int64, from, until time.Time) {
	h.add(client, turn{false, token}, from, until)
}

func (h *History) add(client int, t turn, call, end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		h.began = call
	}
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: t,
		Call: int64(call.Sub(h.began)), Return: int64(end.Sub(h.began)),
	})
}

// Check looks for an order of all that was noted, each within its time, in which one at a time is granted something, and
// tokens increase.
func (h *History) Check() error {
	type state struct{ holder, last int64 }
	model := porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			st, t := s.(state), input.(turn)
			if t.granted {
				return st.holder == 0 && t.token > st.last, state{t.token, t.token}
			}
			return st.holder == t.token, state{0, st.last}
		},
	}
	if !porcupine.CheckOperations(model, h.ops) {
		return fmt.Errorf("this is not the history of one holder at a time: %+v", h.ops)
	}
	return nil
}
