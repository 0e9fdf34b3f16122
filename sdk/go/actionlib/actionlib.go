// Package actionlib lets you write an action for Millstream in Go: a program that reads and writes frames.
package actionlib

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Limit is the longest message.
const Limit = 64 << 20

const chunk = 1 << 18

// ErrEmpty is returned for a message that would be taken for an acknowledgement.
var ErrEmpty = errors.New("an empty message is an acknowledgement: call AckMessage")

var (
	input  = bufio.NewReaderSize(os.Stdin, chunk)
	output = bufio.NewWriterSize(os.Stdout, chunk)
)

// ReadMessage returns the next input. At the end of all inputs it ends the program, with code 0.
func ReadMessage() ([]byte, error) {
	data, err := NextMessage()
	if err == io.EOF {
		os.Exit(0)
	}
	return data, err
}

// NextMessage returns the next input, or io.EOF at the end of all inputs.
func NextMessage() ([]byte, error) {
	var head [4]byte
	if err := fill(head[:], 4, true); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > Limit {
		Fatal(fmt.Errorf("an input of %d bytes is longer than the limit", length))
	}
	data := make([]byte, length)
	return data, fill(data, int(length), false)
}

func fill(data []byte, wanted int, mayEnd bool) error {
	if input.Buffered() < wanted {
		// Reading may wait: nobody should wait for what is held back.
		if err := Flush(); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(input, data)
	if err == io.EOF && mayEnd {
		return io.EOF
	}
	if err != nil {
		Fatal(fmt.Errorf("the input ends within a message"))
	}
	return nil
}

// WriteMessage writes an output. In the contract "one" it is the answer to the input; in "stream" more may follow.
func WriteMessage(data []byte) error {
	if len(data) == 0 {
		return ErrEmpty
	}
	return frame(data)
}

// AckMessage says that the input is done: without an output, or ("stream") after all of them.
func AckMessage() error {
	return frame(nil)
}

// WriteError logs an error and answers the input with no output, so that the count of answers holds.
func WriteError(err error) {
	fmt.Fprintf(os.Stderr, "error: %v\n", err)
	AckMessage()
}

// Fatal logs an error and ends the program with code 1; the input is given to another one.
func Fatal(err error) {
	Flush()
	fmt.Fprintf(os.Stderr, "fatal: %v\n", err)
	os.Exit(1)
}

// Flush writes what is held back. Reading does it whenever it has to wait; so does the end of the inputs.
func Flush() error {
	return output.Flush()
}

func frame(data []byte) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(data)))
	if _, err := output.Write(head[:]); err != nil {
		return err
	}
	_, err := output.Write(data)
	return err
}
