package embedded_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

var transports = map[string]embedded.Config{"TCP": {}, "Memory": {InMemory: true}}

func BenchmarkStartClose(b *testing.B) {
	for name, cfg := range transports {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s, err := embedded.Start(cfg)
				require.NoError(b, err)
				require.NoError(b, s.Close())
			}
		})
	}
}

// BenchmarkRequest measures single requests through go-zookeeper, one after the other.
func BenchmarkRequest(b *testing.B) {
	for name, cfg := range transports {
		b.Run(name, func(b *testing.B) {
			s := start(b, cfg)
			c := dialOver(b, s)
			_, err := c.Create("/a", []byte("data"), 0, open)
			require.NoError(b, err)

			b.Run("Get", func(b *testing.B) {
				for b.Loop() {
					c.Get("/a")
				}
			})
			b.Run("Set", func(b *testing.B) {
				for b.Loop() {
					c.Set("/a", nil, -1)
				}
			})
			b.Run("CreateDelete", func(b *testing.B) {
				for b.Loop() {
					path, _ := c.Create("/a/n-", nil, zk.FlagEphemeralSequential, open)
					c.Delete(path, -1)
				}
			})
		})
	}
}

// BenchmarkPipeline measures the server without the cost of a client library: one client sends
// requests in batches.
func BenchmarkPipeline(b *testing.B) {
	for name, cfg := range transports {
		b.Run(name, func(b *testing.B) {
			s := start(b, cfg)
			c := connect(b, s, hello{timeout: 40000})
			c.must(b, opCreate, packet{}.create("/a", []byte("data"), 0))

			const batch = 100
			var requests packet
			for range batch {
				requests = append(requests, frame(packet{}.int32(1).int32(opGetData).string("/a").bool(false))...)
			}

			b.ReportAllocs()
			for b.Loop() {
				c.nc.Write(requests)
				for range batch {
					c.receive()
				}
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// dialOver is dial over TCP if the server listens.
func dialOver(b *testing.B, s *embedded.Server) *zk.Conn {
	if s.ConnectString() == inMemory {
		return dial(b, s)
	}
	c, events, err := zk.Connect([]string{s.ConnectString()}, waitLimit, zk.WithLogger(silent{}))
	require.NoError(b, err)
	b.Cleanup(c.Close)
	for receive(b, events).State != zk.StateHasSession {
	}
	return c
}
