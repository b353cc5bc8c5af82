package lock_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// BenchmarkUncontended compares a lock without contention with the least that one could cost:
// creating a node and deleting it.
func BenchmarkUncontended(b *testing.B) {
	srv := recipestest.Start(b)
	c, root := srv.Client(b), srv.Root(b)
	s, err := c.Session(b.Context())
	if err != nil {
		b.Fatal(err)
	}

	if _, err := s.EnsurePath(b.Context(), root); err != nil {
		b.Fatal(err)
	}

	b.Run("floor", func(b *testing.B) {
		conn := s.Conn()
		for b.Loop() {
			node, err := conn.Create(root+"/n-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
			if err != nil {
				b.Fatal(err)
			}
			if err := conn.Delete(node, -1); err != nil {
				b.Fatal(err)
			}
		}
	})

	for name, newLock := range kinds {
		b.Run(name, func(b *testing.B) {
			m := newLock(c, root+"/"+name)
			for b.Loop() {
				l, err := m.Lock(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Unlock(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}

	b.Run("zk.Lock", func(b *testing.B) {
		l := zk.NewLock(s.Conn(), root+"/zk", zk.WorldACL(zk.PermAll))
		for b.Loop() {
			if err := l.Lock(); err != nil {
				b.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHandOff measures the time from one holder's Unlock to the return of Lock in another
// session.
func BenchmarkHandOff(b *testing.B) {
	srv := recipestest.Start(b)
	path := srv.Root(b) + "/hand-off"
	const players = 2
	leases := make(chan *lock.Lease)
	stop := make(chan struct{})
	var wait suite.Group
	for range players {
		m := lock.New(srv.Client(b), path)
		wait.Go(func() error {
			for {
				l, err := m.Lock(b.Context())
				if err != nil {
					return err
				}
				select {
				case leases <- l:
				case <-stop:
					return l.Unlock(b.Context())
				}
			}
		})
	}

	for b.Loop() {
		if err := (<-leases).Unlock(b.Context()); err != nil {
			b.Fatal(err)
		}
	}

	close(stop)
	if err := wait.Wait(); err != nil {
		b.Fatal(err)
	}
}
