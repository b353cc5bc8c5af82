package queue_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Calls that share a transaction don't share what is wrong with one of them.
func TestRefusalIsForItsCallAlone(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/q"
		failing := func(names string) *protocol.Client {
			return link.Client(t, protocol.WithACLFor(func(path string) []zk.ACL {
				if regexp.MustCompile(names).MatchString(path) {
					panic("x")
				}
				return nil
			}))
		}
		c := failing("/bad$")
		var q *queue.Queue
		alone := func(want string, calls ...func() error) {
			t.Helper()
			link.Delay(20 * time.Millisecond)
			defer link.Delay(0)
			var errs []<-chan error
			for _, call := range calls { // the others share a transaction while the first has its own
				errs = append(errs, suite.Later(call))
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, suite.Wait(t, errs[0]))
			require.ErrorContains(t, suite.Wait(t, errs[1]), want)
			require.NoError(t, suite.Wait(t, errs[2]))
		}

		good := func() error { return offerX(t.Context(), q) }
		delayed := func() error {
			_, err := q.OfferAfter(t.Context(), time.Second, nil)
			return err
		}
		keyed := func() error { return offerKeyK(t.Context(), q) }
		q = queue.New(failing("/keys|/delayed/[0-9]*$"), path)
		alone("panicked", good, keyed, good)
		alone("panicked", good, delayed, good)
		q = queue.New(c, path)
		require.NoError(t, keyed())
		require.NoError(t, delayed())
		alone("panicked", good, func() error {
			_, err := q.OfferKey(t.Context(), "bad", nil)
			return err
		}, good)
		conn, buckets := srv.Conn(t), path+"/zkrecipes/delayed"
		defer open(conn, path)
		for _, bucket := range children(t, c, buckets) {
			_, err := conn.SetACL(buckets+"/"+bucket, zk.WorldACL(zk.PermRead), -1)
			require.NoError(t, err)
		}
		alone("no permission", good, delayed, good)

		ack := func(ops ...any) func() error {
			it := reserve(t, q)
			return func() error { return it.Ack(t.Context(), ops...) }
		}
		alone("panicked", ack(), ack(&zk.CreateRequest{Path: path + "/bad"}), ack())
	})
}
