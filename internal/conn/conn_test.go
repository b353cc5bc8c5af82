package conn

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// A fakeHost is a session that holds nothing.
type fakeHost struct {
	answers int           // that it was told of
	log     chan struct{} // receives for each message, if it is not nil
	change  chan struct{} // likewise for each change
}

func (h *fakeHost) Resume(time.Time, time.Duration) (hold bool, err error) { return false, nil }
func (h *fakeHost) Answered(_, _ time.Time, _ trust.Witness)               { h.answers++ }
func (h *fakeHost) Stake() Stake                                           { return StakeNothing }
func (h *fakeHost) Silent() bool                                           { return false }
func (h *fakeHost) Holds() bool                                            { return false }
func (h *fakeHost) Err() error                                             { return nil }
func (h *fakeHost) Gone(error)                                             {}
func (h *fakeHost) Deleted(string)                                         {}
func (h *fakeHost) Do(func(*zk.Conn) error) error                          { return nil }

func (h *fakeHost) Changed(Change) {
	if h.change != nil {
		<-h.change
	}
}

func (h *fakeHost) Log(slog.Level, string, ...any) {
	if h.log != nil {
		<-h.log
	}
}

// testEnsemble is one without servers, that starts goroutines whatever happens.
func testEnsemble() *Ensemble {
	e := NewEnsemble()
	e.Closing, e.Work = context.Background(), context.Background()
	e.Spawn = func(f func()) bool { go f(); return true }
	return e
}

// begun returns a Conn whose session has begun, with a timeout of twelve seconds.
func begun() (*Conn, *fakeHost) {
	h := &fakeHost{}
	c := New(context.Background(), testEnsemble(), h)
	c.id.Store(1)
	c.timeout = 12 * time.Second
	return c, h
}
