package suite_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
	"github.com/zkrecipes/zkrecipes/value"
)

const owner = "0000000000000001-00000001-"

// A subject makes a value that a recipe's New function returns. It has a string that the verbs of
// that accept.
type subject struct {
	make func(c *protocol.Client, path string) any
	text string
}

var subjects = []subject{
	{func(c *protocol.Client, path string) any { return lock.New(c, path) }, owner + "lock-0000000000"},
	{func(c *protocol.Client, path string) any { return lock.NewSimple(c, path) }, owner + "lock-0000000000"},
	{func(c *protocol.Client, path string) any { return rwlock.New(c, path) }, owner + "write-0000000000"},
	{func(c *protocol.Client, path string) any { return semaphore.New(c, path, 2) }, owner + "permit-0000000000"},
	{func(c *protocol.Client, path string) any { return election.New(c, path) }, owner + "lock-0000000000"},
	{func(c *protocol.Client, path string) any { return group.New(c, path) }, "name"},
	{func(c *protocol.Client, path string) any { return once.New(c, path) }, "key"},
	{func(c *protocol.Client, path string) any { return queue.New(c, path, queue.WithPriorities()) }, "entry-100-0000000000"},
	{func(c *protocol.Client, path string) any { return barrier.New(c, path) }, ""},
	{func(c *protocol.Client, path string) any { return value.New(c, path) }, ""},
	{func(c *protocol.Client, path string) any { return doublebarrier.New(c, path, 2) }, ""},
}

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
)

// A verb is an exported method that takes a context.
type verb struct {
	name string // "lock.Mutex.Lock"
	call reflect.Value
	text string
}

func verbsOf(v any, text string) (all []verb) {
	value := reflect.ValueOf(v)
	for i := range value.NumMethod() {
		m := value.Type().Method(i)
		if m.Type.NumIn() > 1 && m.Type.In(1) == contextType && m.Name != "Context" {
			name := strings.TrimPrefix(value.Type().String(), "*") + "." + m.Name
			all = append(all, verb{name, value.Method(i), text})
		}
	}
	return all
}

// takesFunc reports whether one of the parameters is a function.
func (v verb) takesFunc() bool {
	for i := range v.call.Type().NumIn() {
		if v.call.Type().In(i).Kind() == reflect.Func {
			return true
		}
	}
	return false
}

func neverCalled([]reflect.Value) []reflect.Value { panic("the function was called") }

// try calls the verb with arguments that are fine, but for the function, which may be nil.
func (v verb) try(t *testing.T, f func([]reflect.Value) []reflect.Value) (err error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panics: %v", v.name, r)
		}
	}()

	typ := v.call.Type()
	args := []reflect.Value{reflect.ValueOf(t.Context())}
	for i := 1; i < typ.NumIn() && !(typ.IsVariadic() && i == typ.NumIn()-1); i++ {
		in := typ.In(i)
		arg := reflect.New(in).Elem()
		switch {
		case in.Kind() == reflect.String:
			arg.SetString(v.text)
		case in == reflect.TypeFor[time.Duration]():
			arg.SetInt(int64(time.Second))
		case arg.CanInt():
			arg.SetInt(2)
		case in == reflect.TypeFor[[][]byte]():
			arg.Set(reflect.ValueOf([][]byte{nil}))
		case in.Kind() == reflect.Func && f != nil:
			arg.Set(reflect.MakeFunc(in, f))
		}
		args = append(args, arg)
	}

	results := v.call.Call(args)
	last := results[len(results)-1]
	if last.Type() == errorType {
		err, _ = last.Interface().(error)
		return err
	}
	last.Call([]reflect.Value{reflect.MakeFunc(last.Type().In(0), func(yielded []reflect.Value) []reflect.Value {
		err, _ = yielded[1].Interface().(error)
		return []reflect.Value{reflect.ValueOf(false)}
	})})
	return err
}

// Bad arguments and a closed client are refused by all verbs alike, before anything is sent or
// reported. (A law says so of nil contexts.)
func TestBadArgumentsAreRefusedByEveryVerb(t *testing.T) {
	suite.Bubble(t, refuseBadArguments)
}

func refuseBadArguments(t *testing.T, srv *recipestest.Server) {
	link, root, events := srv.Link(t), srv.Root(t), make(told, 1000)
	c, closed := link.Client(t, protocol.WithObserver(events)), link.Client(t)
	suite.Session(t, c)
	suite.Close(t, closed)
	before := link.Count(recipestest.OpAny)
	for _, s := range subjects {
		for _, v := range verbsOf(s.make(c, root+"/x"), s.text) {
			if v.takesFunc() {
				assert.ErrorContains(t, v.try(t, nil), "nil function", v.name)
			}
		}
		for path, why := range map[string]string{
			"":                 "empty",
			"relative":         "is not absolute",
			"/":                "below the root",
			"/a//b":            `has "//"`,
			"/a/":              "ends with a slash",
			"/a/../b":          `has a part ".."`,
			"/a/.":             `has a part "."`,
			"/zookeeper":       "is reserved for ZooKeeper itself",
			"/zookeeper/quota": "is reserved for ZooKeeper itself",
		} {
			for _, v := range verbsOf(s.make(c, path), s.text) {
				err := v.try(t, neverCalled)
				assert.ErrorIs(t, err, zk.ErrInvalidPath, "%s at %q", v.name, path)
				assert.ErrorContains(t, err, why, v.name)
				assert.NotContains(t, err.Error(), ": : ", "%s names the empty path", v.name)
			}
		}
		for _, none := range []*protocol.Client{nil, new(protocol.Client)} {
			for _, v := range verbsOf(s.make(none, "/x"), s.text) {
				assert.ErrorContains(t, v.try(t, neverCalled), "nil client", v.name)
			}
		}
		for _, v := range verbsOf(s.make(closed, root+"/x"), s.text) {
			if v.name != "queue.Queue.Redrive" { // it would need another queue
				assert.ErrorIs(t, v.try(t, neverCalled), protocol.ErrClosed, v.name)
			}
		}
		zero := reflect.New(reflect.TypeOf(s.make(c, "/x")).Elem()).Interface()
		for _, v := range verbsOf(zero, s.text) {
			err := v.try(t, neverCalled)
			assert.Error(t, err, v.name)
			assert.NotContains(t, fmt.Sprint(err), "panics")
		}
	}
	letters := func(c *protocol.Client, path string, attempts int, opts ...queue.Option) queue.Option {
		return queue.WithDeadLetter(queue.New(c, path, opts...), attempts)
	}
	for name, option := range map[string]queue.Option{
		"bad length":   queue.WithMaxLength(0),
		"no letters":   queue.WithDeadLetter(nil, 1),
		"own letters":  letters(c, "/q", 1),
		"no attempts":  letters(c, "/d", 0),
		"dead of nil":  letters(nil, "/d", 1),
		"dead nowhere": letters(c, "d/", 1),
		"bad in a bad": letters(c, "/d", 1, queue.WithMaxLength(-1)),
	} {
		for _, v := range verbsOf(queue.New(c, "/q", option), "entry-100-0000000000") {
			assert.Error(t, v.try(t, neverCalled), "%s with %s", v.name, name)
		}
	}
	synctest.Wait()
	require.Equal(t, before, link.Count(recipestest.OpAny), "nothing was sent")
	require.Empty(t, events)
}

type told chan protocol.Event

func (e told) Observe(event protocol.Event) { e <- event }

func TestCallThatEndsWhileRefusedSaysWhy(t *testing.T) {
	for code, want := range map[zkwire.Code]error{
		zkwire.CodeThrottled:    protocol.ErrThrottled,
		zkwire.CodeReadOnly:     protocol.ErrReadOnly,
		zkwire.CodeSessionMoved: zk.ErrSessionMoved,
	} {
		suite.Run(t, code.String(), func(t *testing.T, srv *recipestest.Server) {
			link, root := srv.Link(t), srv.Root(t)
			var log bytes.Buffer
			c := link.Client(t, protocol.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			suite.Session(t, c)
			link.Fail(recipestest.OpAny, "", int32(code), 1<<20)
			m := lock.New(c, root)
			for _, verb := range []func(context.Context) (*lock.Lease, error){m.Lock, m.TryLock} {
				_, err := verb(suite.Within(t, 3*time.Second))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, want)
			}
			link.Fail(recipestest.OpAny, "", int32(code), 0)
			suite.Close(t, c)
			require.Contains(t, log.String(), "server refuses requests, which are tried again")
		})
	}
}
