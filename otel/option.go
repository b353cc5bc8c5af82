package zkotel

import (
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// An Option configures an [Observer].
type Option func(*Observer) error

// WithMeterProvider sets where metrics go. The default is OpenTelemetry's global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(o *Observer) error {
		if p == nil {
			return errors.New("the meter provider is nil")
		}
		o.meters = p
		return nil
	}
}

// WithTracerProvider sets where spans go. The default is OpenTelemetry's global provider. To make
// none, use the provider of go.opentelemetry.io/otel/trace/noop.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *Observer) error {
		if p == nil {
			return errors.New("the tracer provider is nil")
		}
		o.tracers = p
		return nil
	}
}

// WithAttributes adds attributes to all metrics and spans of the observer.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	attributes = slices.Clone(attributes)
	return func(o *Observer) error {
		for _, a := range attributes {
			if !a.Valid() {
				return errors.New("an attribute has no key or no value")
			}
		}
		o.attributes = append(o.attributes, attributes...)
		return nil
	}
}

// WithPathAttribute sets the attribute zookeeper.path of metrics: f gets the path that was given to
// a recipe, and returns the attribute. If f returns "", the metric has no such attribute. By
// default it is the path itself. Spans always have the path itself.
//
// f is called for each event, and concurrently if several clients have the observer. It should
// return one of a few values (see "Cardinality").
func WithPathAttribute(f func(path string) string) Option {
	return func(o *Observer) error {
		if f == nil {
			return errors.New("the function for the path attribute is nil")
		}
		o.pathAttribute = f
		return nil
	}
}
