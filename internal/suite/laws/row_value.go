package laws

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/value"
)

func setValue(s *Stage, data string) {
	must(value.New(s.Other(), s.Path).Set(s.ctx, []byte(data)))
}

// valued is a verb of a value that is set, and has been written one version more each time it was
// called.
func valued(verb func(v *value.Value, ctx context.Context) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		v := value.New(s.Client, s.Path)
		return Verb{
			Before: func() { setValue(s, "old") },
			Call:   call(func(ctx context.Context) error { return verb(v, ctx) }),
			Effect: func() int { return s.Versions("^$") },
		}
	}
}

// without makes a verb one of a value that is not set.
func without(verb func(*Stage) Verb) func(*Stage) Verb {
	return changed(verb, func(s *Stage, v *Verb) {
		v.Before = func() { check(value.New(s.Other(), s.Path).Delete(s.ctx)) }
	})
}

func set(v *value.Value, ctx context.Context) error {
	state, err := v.Set(ctx, []byte("new"))
	return found(1, min(int(state.Version), 1), err)
}

var valueRows = []Row{
	{"value.Value.Get", valued(func(v *value.Value, ctx context.Context) error {
		state, err := v.Get(ctx)
		return found(len("old"), len(state.Data), err)
	})},
	{"value.Value.Get not set", without(valued(func(v *value.Value, ctx context.Context) error {
		if _, err := v.Get(ctx); !errors.Is(err, value.ErrUnset) {
			return err
		}
		return nil
	}))},
	{"value.Value.Set", valued(set)},
	{"value.Value.Set not set before", without(valued(set))},
	{"value.Value.Update", valued(func(v *value.Value, ctx context.Context) error {
		return only(v.Update(ctx, func(old value.State) ([]byte, error) { return append(old.Data, '+'), nil }))
	})},
	{"value.Value.Delete", seen((*Stage).fewer, "^$", valued((*value.Value).Delete))},
	{"value.Value.Watch", valued(func(v *value.Value, ctx context.Context) error {
		var seen value.State
		err := first(v.Watch(ctx), func(state value.State) bool { seen = state; return true })
		return found(len("old"), len(seen.Data), err)
	})},
	{"value.Value.Watch until it is set", changed(without(valued(func(v *value.Value, ctx context.Context) error {
		return first(v.Watch(ctx), func(state value.State) bool { return !state.Unset() })
	})), func(s *Stage, v *Verb) {
		v.Beside = func(context.Context) { setValue(s, "new") }
		v.Effect = nil
	})},
	{"value.Value.Watch until it is deleted", changed(valued(func(v *value.Value, ctx context.Context) error {
		return first(v.Watch(ctx), value.State.Unset)
	}), func(s *Stage, v *Verb) {
		v.Beside = func(context.Context) { value.New(s.Other(), s.Path).Delete(s.ctx) }
		v.Effect = nil
	})},
}
