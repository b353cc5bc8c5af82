package protocol

import "github.com/zkrecipes/zkrecipes/internal/zkwire"

// The names that watch.go, pass.go and path.go use for what connection.go and internal/zkwire have.
const (
	opExists        = int32(zkwire.OpExists)
	opRemoveWatches = int32(zkwire.OpRemoveWatches)

	codeConnectionLoss = int32(zkwire.CodeConnectionLoss)
	codeNoNode         = int32(zkwire.CodeNoNode)
	codeNoWatcher      = int32(zkwire.CodeNoWatcher)
	codeUnimplemented  = zkwire.CodeUnimplemented
)

type wire = connection

func (w *connection) ask(op int32, path string, arg []byte, done func(code int32)) {
	w.request(zkwire.Op(op), path, arg, func(code zkwire.Code) { done(int32(code)) })
}
