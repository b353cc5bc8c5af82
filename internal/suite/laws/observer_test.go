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

// waits keeps the waits that an observer is told of: how each one ended.
type waits struct {
	mu     sync.Mutex
	begun  map[protocol.Event]int // and not ended, by recipe, path and mode
	ends   []protocol.Event
	wrong  []protocol.Event // ends of what has not begun
	silent bool             // what comes is not of the call
}

func (w *waits) Observe(e protocol.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := protocol.Event{Recipe: e.Recipe, Path: e.Path, Mode: e.Mode}
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

// A wait is reported when it begins, and once when it ends, with a context and the error of the call.
func TestWaitsAreReported(t *testing.T) {
	player := Virtual()
	for _, row := range player.rows {
		for _, fault := range []string{"", "ctx ends", "session ends"} {
			sc := &scene{Player: player, row: row}
			t.Run(sc.id()+"/"+fault, func(t *testing.T) {
				told := &waits{begun: make(map[protocol.Event]int), silent: true}
				sc.play(t, setting{client: []protocol.ConnectOption{protocol.WithObserver(told)}}, func(s *Stage, v Verb) {
					must(v.prepare())
					s.rest()
					told.set(false)
					ctx, cancel := context.WithCancel(s.ctx)
					defer cancel()
					switch fault {
					case "ctx ends":
						time.AfterFunc(500*time.Millisecond, cancel)
					case "session ends":
						time.AfterFunc(500*time.Millisecond, s.expire)
					}
					o := s.do(v, ctx)
					s.settled()
					told.mu.Lock()
					ends := told.ends
					told.mu.Unlock()
					require.True(s, len(ends) > 0 || v.Beside == nil || untold.MatchString(row.Name), "a wait is not reported")
					for _, e := range ends {
						require.NotNil(s, e.Context)
						if e.Err != nil && o.err != nil {
							require.ErrorIs(s, o.err, e.Err)
						}
					}
					if fault == "session ends" {
						s.rest()
					}
					o.back()
					s.rest()
				})
				if strings.Contains(row.Name, "RLock shared") { // one of them waits before the call
					return
				}
				require.Empty(t, told.wrong)
				for of, n := range told.begun {
					require.Zero(t, n, "%+v", of)
				}
			})
		}
	}
}
