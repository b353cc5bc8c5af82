package recipestest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// BenchmarkRoundTrip shows what a link adds to an operation.
func BenchmarkRoundTrip(b *testing.B) {
	for _, network := range []struct {
		name string
		opts []recipestest.Option
	}{
		{name: "tcp"},
		{name: "memory", opts: []recipestest.Option{recipestest.WithInMemory()}},
	} {
		roundTrip := func(b *testing.B, dialer func(*recipestest.Server) zk.Dialer) {
			b.ReportAllocs()
			s := recipestest.Start(b, network.opts...)
			conn := connect(b, s, dialer(s), 10*time.Second)
			for b.Loop() {
				_, _, err := conn.Exists("/")
				require.NoError(b, err)
			}
		}
		b.Run(network.name+"/direct", func(b *testing.B) {
			roundTrip(b, func(s *recipestest.Server) zk.Dialer { return s.Dial })
		})
		b.Run(network.name+"/link", func(b *testing.B) {
			roundTrip(b, func(s *recipestest.Server) zk.Dialer { return s.Link(b).Dial })
		})
	}
}

// BenchmarkTest shows what a test pays for a server, a path and the checks at its end.
func BenchmarkTest(b *testing.B) {
	shared := recipestest.Start(b)
	b.Run("own server", func(b *testing.B) {
		for b.Loop() {
			f := run(b, func(tb testing.TB) { recipestest.Start(tb).Root(tb) })
			require.Empty(b, f.errors)
		}
	})

	b.Run("shared server", func(b *testing.B) {
		for b.Loop() {
			f := run(b, func(tb testing.TB) { shared.Root(tb) })
			require.Empty(b, f.errors)
		}
	})
}
