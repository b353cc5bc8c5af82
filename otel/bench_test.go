package zkotel_test

import (
	"context"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/stretchr/testify/require"

	zkotel "github.com/zkrecipes/zkrecipes/otel"
)

// BenchmarkHold has the two events of a hold, with spans that are dropped by the sampler or
// recorded.
func BenchmarkHold(b *testing.B) {
	for name, sampler := range map[string]sdktrace.Sampler{
		"spans=no": sdktrace.NeverSample(), "spans=yes": sdktrace.AlwaysSample(),
	} {
		b.Run(name, func(b *testing.B) {
			meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
			o, err := zkotel.New(zkotel.WithMeterProvider(meters),
				zkotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))))
			require.NoError(b, err)
			defer meters.Shutdown(context.Background())

			f, token := newFeed(o), int64(0)
			b.ReportAllocs()
			for b.Loop() {
				token++
				f.acquired(token)
				f.released(token)
			}
		})
	}
}
