package must_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/must"
)

func TestTryReturnsTheErrorThatEndsItsFunction(t *testing.T) {
	require.NoError(t, must.Try(func() { require.Equal(t, 1, must.Get(1, nil)) }))
	require.Equal(t, io.EOF, must.Try(func() { must.Get(1, io.EOF) }))
	require.ErrorIs(t, must.Try(func() { must.Fail("read: %w", io.EOF) }), io.EOF)
	other := errors.New("of no function of this package")
	require.PanicsWithValue(t, other, func() { must.Try(func() { panic(other) }) })
}
