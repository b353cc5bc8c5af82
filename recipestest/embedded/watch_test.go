package embedded_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestEventComesBeforeTheAnswerThatReflectsIt(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{"over TCP": {}, "in memory": {InMemory: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, cfg)
			c, w := connect(t, s, hello{}), connect(t, s, hello{})
			c.must(t, zkwire.OpCreate, packet{}.create("/a", nil, 0))

			const rounds = 2000
			done := make(chan error, 1)
			go func() {
				for range rounds {
					if _, err := c.call(zkwire.OpSetData, packet{}.string("/a").buffer(nil).int32(-1)); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()

			seen, watching := int32(-1), false
			for seen < rounds {
				st := w.must(t, zkwire.OpExists, packet{}.string("/a").bool(true)).stat()
				events := w.takeEvents()
				switch {
				case watching && st.Version > seen:
					require.Equal(t, []string{"3 /a"}, events, "version %d after %d", st.Version, seen)
				case watching:
					require.Empty(t, events)
				}
				seen, watching = st.Version, true
			}
			require.NoError(t, suite.Wait(t, done))
		})
	}
}

func TestClientTooSlowForItsEventsIsCutOffAndBlocksNoOthers(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{"over TCP": {}, "in memory": {InMemory: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.MaxSessionTimeout = time.Hour // the slow client sends no pings
			s := start(t, cfg)
			c, slow := connect(t, s, hello{}), connect(t, s, hello{timeout: 3_600_000})
			slow.must(t, zkwire.OpAddWatch, packet{}.string("/").int32(1))

			path := "/" + strings.Repeat("x", 500_000)
			c.must(t, zkwire.OpCreate, packet{}.create(path, nil, 0))
			request := packet{}.string(path).buffer(nil).int32(-1)
			for range 80 { // 40 MB of events: 16 may be unsent, and as many under way
				c.must(t, zkwire.OpSetData, request)
			}

			require.NoError(t, slow.nc.SetDeadline(time.Now().Add(waitLimit)))
			require.NoError(t, suite.Err(io.Copy(io.Discard, slow.nc)), "the bytes that were sent, then the end")

			// Its session lives on.
			require.NotZero(t, connect(t, s, hello{session: slow.session, password: slow.password}).session)
		})
	}
}
