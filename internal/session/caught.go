package session

// A foreignError is what an ACL function panics with once it has a name. It becomes the error of the
// call that needs the ACL.
type foreignError struct{ error }

// Catch is deferred by such calls.
func Catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case foreignError:
		*err = p
	default:
		panic(p)
	}
}
