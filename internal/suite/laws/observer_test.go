package laws

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// waits keeps the waits that an observer is told of, and the holds: how each one ended.
type waits struct {
	mu     sync.Mutex
	begun  map[protocol.Event]int // and not ended, by recipe, path and mode
	held   map[protocol.Event]int // and neither released nor lost, by token and session as well
	ends   []protocol.Event
	wrong  []protocol.Event // ends of what has not begun
	silent bool             // the waits that come are not the call's
}

func (w *waits) Observe(e protocol.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := protocol.Event{Recipe: e.Recipe, Path: e.Path, Mode: e.Mode}
	hold := of
	hold.Session, hold.Token = e.Session, e.Token
	switch e.Kind {
	case protocol.EventAcquired:
		if e.Err == nil && e.Token != 0 {
			w.held[hold]++
		}
	case protocol.EventReleased, protocol.EventLost:
		w.held[hold]--
	}
	switch {
	case w.silent:
	case e.Kind == protocol.EventWaiting:
		w.begun[of]++
	case e.Kind == protocol.EventAcquired:
		if w.begun[of]--; w.begun[of] < 0 {
			w.wrong = append(w.wrong, e)
		}
		w.ends = append(w.ends, e)
	}
}

func (w *waits) set(silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = silent
}

// untold are the rows that wait for something that is no recipe's to give.
var untold = regexp.MustCompile(`^(protocol|recipe)\.|Observe|Watch|Revoked`)

// A wait is reported when it begins, and once when it ends, with a context and the error of the
// call. A hold is reported when it begins, and once when it ends. So gauges of both come down
// again.
func TestWaitsAreReported(t *testing.T) {
	for name, strike := range map[string]func(s *Stage, cancel func()){
		"no fault":     func(*Stage, func()) {},
		"ctx ends":     func(_ *Stage, cancel func()) { time.AfterFunc(500*time.Millisecond, cancel) },
		"session ends": func(s *Stage, _ func()) { time.AfterFunc(500*time.Millisecond, s.expire) },
	} {
		t.Run(name, func(t *testing.T) {
			eachScene(t, func(t *testing.T, sc *scene) { sc.reports(t, strike) })
		})
	}
}

func (sc *scene) reports(t *testing.T, strike func(s *Stage, cancel func())) {
	told := &waits{begun: make(map[protocol.Event]int), held: make(map[protocol.Event]int), silent: true}
	sc.ready(t, setting{client: []protocol.ConnectOption{protocol.WithObserver(told)}}, func(s *Stage, v Verb, _ int) {
		s.rest()
		told.set(false)
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		strike(s, cancel)
		o := s.do(v, ctx)
		s.settled()
		told.mu.Lock()
		ends := told.ends
		told.mu.Unlock()
		require.True(s, len(ends) > 0 || v.Beside == nil || untold.MatchString(sc.row.Name), "a wait is not reported")
		for _, e := range ends {
			require.NotNil(s, e.Context)
			if e.Err != nil && o.err != nil {
				require.ErrorIs(s, o.err, e.Err)
			}
		}
		s.rest()
		o.back()
		s.rest()
	})
	for hold, n := range told.held {
		require.Zero(t, n, "%+v", hold)
	}
	if strings.Contains(sc.row.Name, "RLock shared") { // one of them waits before the call
		return
	}
	require.Empty(t, told.wrong)
	for of, n := range told.begun {
		require.Zero(t, n, "%+v", of)
	}
}
