package queue

import (
	"context"
	"strconv"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// FuzzReceipt reads a receipt with arbitrary data. A transaction was executed if its number stands
// there, and in no other case.
func FuzzReceipt(f *testing.F) {
	for _, data := range []string{"", "7", "07", "+7", "7\n", "8", "-7", "\x007", "99999999999999999999"} {
		f.Add([]byte(data), int64(7))
	}
	server := recipestest.Start(f, recipestest.WithInMemory())
	path := server.Root(f)
	session, err := server.Client(f).Session(context.Background())
	require.NoError(f, err)
	_, err = session.EnsurePath(context.Background(), path)
	require.NoError(f, err)
	require.NoError(f, session.Create(context.Background(), path+"/keeps-the-container", nil, 0))

	f.Fuzz(func(t *testing.T, data []byte, number int64) {
		ctx := context.Background()
		r := &receipt{session: session, prefix: path + "/receipt-"}
		created, err := r.use(ctx)
		require.NoError(t, err)
		require.True(t, created)
		_, err = session.Set(ctx, r.node, data, -1)
		require.NoError(t, err)

		r.number = number
		_, executed, err := r.read(ctx)
		require.NoError(t, err)
		require.Equal(t, string(data) == strconv.FormatInt(number, 10), executed)

		require.NoError(t, session.Delete(ctx, r.node, -1))
		_, _, err = r.read(ctx)
		require.ErrorIs(t, err, errNoReceipt)
		require.NotErrorIs(t, err, zk.ErrNoNode)
	})
}
