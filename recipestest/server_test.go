package recipestest_test

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestExpireSessionEndsItBeforeItReturns(t *testing.T) {
	everywhere(t, expireSession)
}

func expireSession(t *testing.T, s *recipestest.Server) {
	root := s.Root(t)
	direct := connect(t, s, s.Dial, 10*time.Second)
	create(t, direct, root, 0)
	for _, dial := range []zk.Dialer{s.Dial, s.Link(t).Dial} {
		conn := connect(t, s, dial, 10*time.Second)
		session := conn.SessionID()
		create(t, conn, root+"/a", zk.FlagEphemeral)
		lost := suite.WatchAt(t, conn.GetW, root)

		s.ExpireSession(session)
		requireExists(t, direct, root+"/a", false)
		require.ErrorIs(t, suite.Wait(t, lost).Err, zk.ErrSessionExpired)
		requireBack(t, conn)
		require.NotEqual(t, session, conn.SessionID())

		s.ExpireSession(direct.SessionID())
		requireBack(t, direct)
		direct = conn
	}
}

// requireBack waits until a client has a session again. go-zookeeper closes a client that is
// between two connections badly: it connects once more and stays.
func requireBack(t *testing.T, conn *zk.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := conn.Sync("/")
		return err == nil
	}, 2*time.Minute, time.Millisecond)
}

func TestExpireSessionFailsTheTestIfItIsUnknown(t *testing.T) {
	overBoth(t, func(t *testing.T, _ *recipestest.Server) {
		f := run(t, func(tb testing.TB) {
			recipestest.Start(tb, recipestest.WithInMemory()).ExpireSession(0x4711)
			recipestest.Attach(tb, "127.0.0.1:1").ExpireSession(0x4712)
		})
		require.Len(t, f.errors, 2)
		require.Contains(t, f.errors[0], "0x4711")
		require.Contains(t, f.errors[1], "0x4712")
	})
}

func TestRootsDifferAndCarryTheNameOfTheTest(t *testing.T) {
	t.Parallel()
	s := recipestest.Start(t)
	require.NotEqual(t, s.Root(t), s.Root(t))
	t.Run("with spaces, ümlauts/and slashes", func(t *testing.T) {
		root := s.Root(t)
		require.True(t, strings.HasPrefix(root, "/TestRootsDifferAndCarryTheNameOfTheTest-with_spaces-_-mlauts-and_slashes-"), root)
		create(t, connect(t, s, s.Dial, 5*time.Second), root, 0)
	})
}

func TestRootIsRemovedWithTheTest(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		conn := connect(t, s, s.Dial, 10*time.Second)
		var root string
		f := run(t, func(tb testing.TB) {
			root = s.Root(tb)
			create(tb, conn, root, 0)
			for i := range 300 {
				create(tb, conn, fmt.Sprintf("%s/%d", root, i), 0)
			}

			if suite.Has(tb, s, suite.Containers) {
				suite.Got(conn.CreateContainer(root+"/0/container", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)))(tb)
			}
			s.Root(tb) // never created
		})

		require.Empty(t, f.errors)
		require.Empty(t, f.logs)
		requireExists(t, conn, root, false)
	})
}

func TestLeftoverNodeFailsTheTest(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		conn := connect(t, s, s.Dial, 10*time.Second)
		var root string
		begin := time.Now()
		f := run(t, func(tb testing.TB) {
			root = s.Root(tb)
			create(tb, conn, root, 0)
			create(tb, conn, root+"/dir", 0)
			create(tb, conn, root+"/dir/orphan", zk.FlagEphemeral)
		})

		require.Less(t, time.Since(begin), 20*time.Second)
		require.Len(t, f.errors, 1)
		require.Contains(t, f.errors[0], root+"/dir/orphan")
		require.Contains(t, f.errors[0], fmt.Sprintf("%#x", conn.SessionID()))
		require.Contains(t, f.errors[0], `"data of `+root+"/dir/orphan")
		requireExists(t, conn, root, false)
	})
}

// Nothing has kept the client from deleting its node.
func TestLeftoverNodeOfASoundClientIsReportedSoon(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		begin := time.Now()
		f := run(t, func(tb testing.TB) {
			root, c := s.Root(tb), s.Client(tb)
			session := suite.Got(c.Session(tb.Context()))(tb)
			suite.Got(session.Conn().Create(root, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))(tb)
		})
		require.Less(t, time.Since(begin), 2*time.Second)
		require.Len(t, f.errors, 1)
		require.Contains(t, f.errors[0], "left behind")
	})
}

func TestTestsThatLeaveNothingBehindSucceed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(tb testing.TB, s *recipestest.Server, direct *zk.Conn){
		"a node is deleted in the background": func(tb testing.TB, s *recipestest.Server, direct *zk.Conn) {
			root := s.Root(tb)
			create(tb, direct, root, zk.FlagEphemeral)
			go func() {
				time.Sleep(3 * time.Second)
				if err := direct.Delete(root, -1); err != nil {
					tb.Errorf("%v", err)
				}
			}()
		},
		"its client is closed in the end": func(tb testing.TB, s *recipestest.Server, direct *zk.Conn) {
			root := s.Root(tb) // before the client, whose session must still be there in the end
			session := suite.Got(s.Client(tb).Session(tb.Context()))(tb)
			create(tb, session.Conn(), root, zk.FlagEphemeral)
			go func() {
				time.Sleep(200 * time.Millisecond)
				if _, _, err := session.Conn().Get(root); err != nil {
					tb.Errorf("%v", err)
				}
				session.Conn().Delete(root, -1) // its answer may come too late: with the node there goes the client
			}()
		},
		"its client may have had faults": func(tb testing.TB, s *recipestest.Server, direct *zk.Conn) {
			root, c := s.Root(tb), s.Link(tb).Client(tb)
			session := suite.Got(c.Session(tb.Context()))(tb)
			create(tb, session.Conn(), root, zk.FlagEphemeral)
			go func() {
				time.Sleep(3 * time.Second)
				session.Conn().Delete(root, -1) // the client may be closed before the answer comes
			}()
		},
		"a session dies in a broken network": func(tb testing.TB, s *recipestest.Server, direct *zk.Conn) {
			link, root := s.Link(tb), s.Root(tb)
			conn := connect(tb, s, link.Dial, 10*time.Second)
			create(tb, conn, root, zk.FlagEphemeral)
			link.Stall()
			conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
				direct := connect(t, s, s.Dial, 10*time.Second)
				require.Empty(t, run(t, func(tb testing.TB) { test(tb, s, direct) }).errors)
			})
		})
	}
}

func TestLeftoverNodesBelowAChrootAndWithoutPermissionAreFound(t *testing.T) {
	t.Parallel()
	suite.SkipShort(t)
	s := recipestest.Start(t)
	conn := connect(t, s, s.Dial, 10*time.Second)
	create(t, conn, "/app", 0)
	require.NoError(t, conn.AddAuth("digest", []byte("ada:secret")))
	f := run(t, func(tb testing.TB) {
		root := "/app" + recipestest.Attach(tb, s.ConnectString()+"/app").Root(tb)
		create(tb, conn, root, 0)
		suite.Got(conn.Create(root+"/secret", nil, zk.FlagEphemeral, zk.DigestACL(zk.PermAll, "ada", "secret")))(tb)
	})
	require.Len(t, f.errors, 1)
	require.Contains(t, f.errors[0], "/secret")
	require.Empty(t, f.logs)
	left := suite.ReadAt(t, conn.Children, "/app")
	require.Empty(t, left)
}

func TestLeftoverNodeOfATestThatHasFailedIsOnlyLogged(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		conn := connect(t, s, s.Dial, 10*time.Second)
		begin := time.Now()
		f := run(t, func(tb testing.TB) {
			create(tb, conn, s.Root(tb), zk.FlagEphemeral)
			tb.Errorf("failed")
		})
		require.Equal(t, []string{"failed"}, f.errors)
		require.Len(t, f.logs, 1)
		require.Zero(t, time.Since(begin), "and not waited for")
	})
}

func TestFaultsAreOverBeforeTheChecks(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*recipestest.Link){
		"a broken network": func(l *recipestest.Link) {
			l.LoseReply(recipestest.OpAny, 100)
			l.At(1, l.Cut)
			l.Cut()
		},
		"a slow network": func(l *recipestest.Link) { l.Delay(time.Hour) },
		"after the end": func(l *recipestest.Link) {
			time.AfterFunc(time.Second, l.Cut)
			time.AfterFunc(time.Second, l.Stall)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
				direct := connect(t, s, s.Dial, 10*time.Second)
				begin := time.Now()
				f := run(t, func(tb testing.TB) {
					link, root := s.Link(tb), s.Root(tb)
					conn := open(tb, s, link.Dial, 10*time.Second)
					create(tb, conn, root, zk.FlagEphemeral)
					fault(link)
					time.AfterFunc(2*time.Second, func() { deleteInTheEnd(conn, direct, root) })
				})
				require.Empty(t, f.errors)
				require.Less(t, time.Since(begin), 10*time.Second)
			})
		})
	}
}

// deleteInTheEnd tries for a minute until it has worked, as a janitor does. The answer to its last
// attempt may be lost with the network, which goes as soon as the node has gone: so it looks over
// direct, too.
func deleteInTheEnd(conn, direct *zk.Conn, path string) {
	defer conn.Close()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		if err := conn.Delete(path, -1); err == nil || errors.Is(err, zk.ErrNoNode) {
			return
		}
		if exists, _, err := direct.Exists(path); err == nil && !exists {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestUnreachableServerIsReportedAndDoesNotHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := run(t, func(tb testing.TB) {
			recipestest.Attach(tb, "127.0.0.1:1,127.0.0.1:2/chroot").Root(tb)
		})
		require.Len(t, f.errors, 1)
		require.Contains(t, f.errors[0], "cannot look for leftover nodes")
		require.Less(t, time.Since(begin), 45*time.Second)
	})
}

func TestStoppedServerIsResumedForTheChecks(t *testing.T) {
	overBoth(t, func(t *testing.T, _ *recipestest.Server) {
		f := run(t, func(tb testing.TB) {
			s := recipestest.Start(tb, recipestest.WithConfig(embedded.Config{TickTime: 500 * time.Millisecond}))
			conn := open(tb, s, s.Dial, 10*time.Second)
			create(tb, conn, s.Root(tb), 0)
			conn.Close()
			s.Embedded().Stop() // another process may take its port until it is resumed
		})
		require.Empty(t, f.errors)
	})
}

func TestSubtestsShareAServer(t *testing.T) {
	t.Parallel()
	s := recipestest.Start(t)
	parent := connect(t, s, s.Link(t).Dial, 10*time.Second)
	root := s.Root(t)
	create(t, parent, root, 0)
	for i := range 5 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			link := s.Link(t)
			conn := connect(t, s, link.Dial, 10*time.Second)
			create(t, conn, s.Root(t), 0)
			create(t, conn, fmt.Sprintf("%s/%d", root, i), 0)
			link.Cut()
		})
	}
}

func TestGoroutineLeftBehindFailsTheTest(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	defer close(leave)
	f := run(t, func(tb testing.TB) {
		recipestest.Start(tb)
		go func() { leftBehind(leave) }()
	})
	require.Len(t, f.errors, 1)
	require.Contains(t, f.errors[0], "leftBehind")
	require.Contains(t, f.errors[0], "server_test.go")
	require.Equal(t, 1, strings.Count(f.errors[0], "leftBehind"))
}

func leftBehind(leave <-chan struct{}) { <-leave }

// The goroutine that hands signals out belongs to the process. Only the first test that asks for
// signals starts it: run this one alone to see it fail.
func TestSignalsLeaveNoGoroutineBehind(t *testing.T) {
	t.Parallel()
	recipestest.Start(t)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)
}

func TestGoroutineLeftBehindInABubbleFailsTheTest(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		var ended time.Time
		leave := make(chan struct{})
		defer close(leave)
		f := run(t, func(tb testing.TB) {
			s.Root(tb)
			go func() { go leftBehind(leave) }()
			tb.Cleanup(func() { ended = time.Now() })
		})
		require.LessOrEqual(t, time.Since(ended), 2*time.Second)
		require.Len(t, f.errors, 1)
		require.Contains(t, f.errors[0], "leftBehind")
	})
}

func TestGoroutinesOfParallelTestsAreToldApart(t *testing.T) {
	t.Parallel()
	s := recipestest.Start(t)
	leave := make(chan struct{})
	defer close(leave)
	go leftBehind(leave) // of this test, ended in time
	f := run(t, func(tb testing.TB) {
		conn := connect(tb, s, s.Link(tb).Dial, 10*time.Second)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			time.Sleep(50 * time.Millisecond)
			conn.Close()
		}()
		tb.Cleanup(func() { <-ended })
	})
	require.Empty(t, f.errors, "or it was waited for, in vain")
}
