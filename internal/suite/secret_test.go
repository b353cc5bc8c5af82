package suite_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A spill collects all that may be shown to people. It is safe for concurrent use.
type spill struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (s *spill) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *spill) Observe(e protocol.Event) {
	e.Context = nil // the caller's own, which changes while it is printed
	s.show(e)
}

// show writes v in all ways in which programs print values.
func (s *spill) show(v any) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(s, verb+"\n", v)
	}
	encoded, _ := json.Marshal(v)
	s.Write(encoded)
	slog.New(slog.NewJSONHandler(s, nil)).Info("show", "v", v)
	slog.New(slog.NewTextHandler(s, nil)).Info("show", "v", v)
}

// requireNone fails t if a secret is there, in one of the spellings that packages fmt and encoding
// have for bytes.
func (s *spill) requireNone(t *testing.T, secrets ...[]byte) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.ToLower(s.text.String())
	for _, secret := range secrets {
		decimal := strings.Trim(fmt.Sprint(secret), "[]")
		hexadecimal := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", secret), "[]byte{"), "}")
		for _, spelling := range []string{
			string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret), decimal, hexadecimal,
		} {
			if at := strings.Index(text, strings.ToLower(spelling)); at >= 0 {
				t.Errorf("a secret is shown: %.200q", text[max(0, at-100):])
			}
		}
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const password = "correct-horse"
		shown, link, root := new(spill), srv.Link(t), srv.Root(t)
		var session []byte
		options := []protocol.ConnectOption{
			protocol.WithAuth("digest", []byte("alice:"+password)),
			protocol.WithSessionTimeout(4 * time.Second),
			protocol.WithLogger(slog.New(slog.NewTextHandler(shown, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))),
			protocol.WithObserver(shown),
			protocol.WithStateListener(func(s protocol.State) { shown.show(s) }),
			suite.Over(link.Dial, func(conn net.Conn) suite.Wire {
				var answer []byte // to the handshake, which has the session's password
				return suite.Wire{Conn: conn, OnRead: func(p []byte) (int, error) {
					n, err := conn.Read(p)
					if answer = append(answer, p[:n]...); len(answer) >= 40 && session == nil {
						if handshake, err := zkwire.ParseConnectResponse(answer[4:40]); err == nil {
							session = bytes.Clone(handshake.Password)
						}
					}
					return n, err
				}}
			}),
		}
		c := suite.Got(protocol.Connect(t.Context(), srv.ConnectString(), options...))(t)
		defer c.Close()
		first := suite.Session(t, c)
		require.Len(t, session, 16)

		require.Contains(t, c.String(), " as digest:alice")
		require.Equal(t, fmt.Sprintf("session %#x", first.ID()), fmt.Sprint(first))
		m, q := lock.New(c, root+"/lock"), queue.New(c, root+"/queue")
		use := func() {
			ctx := suite.Within(t, 10*time.Second)
			lease, err := m.Lock(ctx)
			shown.show(err)
			shown.show(lease)
			if err == nil {
				shown.show(lease.Unlock(ctx))
			}
			_, err = q.Offer(ctx, []byte("x"))
			shown.show(err)
		}
		use()
		link.LoseReply(recipestest.OpMulti, 1)
		use()
		link.LoseReply(recipestest.OpAuth, 1)
		link.Cut()
		synctest.Wait()
		link.Heal()
		use()
		link.Fail(recipestest.OpAny, "", int32(zkwire.CodeNoAuth), 3)
		use()
		link.Fail(recipestest.OpAny, "", int32(zkwire.CodeInvalidACL), 1000)
		use()
		link.Fail(recipestest.OpAny, "", 0, 0)

		// No server takes the credential any more, and then the session is lost.
		link.Fail(recipestest.OpAuth, "", int32(zkwire.CodeAuthFailed), 1000)
		link.Cut()
		synctest.Wait()
		link.Heal()
		use()
		srv.ExpireSession(first.ID())
		use()
		_, err := c.Session(suite.Within(t, 10*time.Second))
		require.ErrorContains(t, err, "auth digest:alice")
		shown.show(err)
		shown.show(c.Close())

		synctest.Wait()
		// Some of these verbs read what goroutines of a client that is not closed would change.
		for _, v := range []any{options, options[0], c, *c, first, *first, c.With(), lock.New(c, root), *lock.New(c, root)} {
			shown.show(v)
		}

		link.Fail(recipestest.OpAuth, "", int32(zkwire.CodeAuthFailed), 1000)
		_, err = protocol.Connect(t.Context(), srv.ConnectString(), options...)
		require.ErrorContains(t, err, "auth digest:alice")
		shown.show(err)
		fmt.Fprint(shown, link.Trace())
		shown.requireNone(t, []byte(password), session)
	})
}
