// Renders templates with Go's own text/template, so that ours can be compared with it.
//
//	go run .          reads cases.json and writes golden.jsonl
//	go run . -serve   answers requests, a line of JSON each, until its input ends
//
// JSON is decoded as Sentinel decodes it: integers are int64, everything else float64. Where Go writes
// "<no value>" nothing is written.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"math"
	"os"
	"strconv"
	"strings"
	"text/template"
)

// The name under which the top-level template can call itself.
const mainName = "message_data"

// Longer than anything that is compared.
const longest = 1 << 24

type request struct {
	Template string          `json:"template"`
	Data     json.RawMessage `json:"data"`
}

type result struct {
	Output  *string `json:"output,omitempty"`
	Fails   string  `json:"fails,omitempty"`
	Problem string  `json:"problem,omitempty"`
}

type golden struct {
	On       string `json:"on"`
	Template string `json:"template"`
	result
}

type table struct {
	Documents map[string]json.RawMessage `json:"documents"`
	Cases     []struct {
		On        string   `json:"on"`
		Templates []string `json:"templates"`
	} `json:"cases"`
}

type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > longest {
		return 0, errors.New("too long")
	}
	return b.Buffer.Write(p)
}

func typed(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := strconv.ParseInt(value.String(), 10, 64); err == nil {
			return whole
		}
		real, err := strconv.ParseFloat(value.String(), 64)
		if err != nil && !math.IsInf(real, 0) {
			log.Fatal(err)
		}
		return real
	case []any:
		// Limit the capacity, so that slice cannot show elements beyond the length.
		list := make([]any, len(value))
		for i, item := range value {
			list[i] = typed(item)
		}
		return list
	case map[string]any:
		for key, item := range value {
			value[key] = typed(item)
		}
		return value
	}
	return value
}

func decode(raw json.RawMessage) any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		log.Fatal(err)
	}
	return typed(value)
}

func render(source string, data any) result {
	parsed, err := template.New(mainName).Parse(source)
	if err != nil {
		return result{Fails: "parse", Problem: err.Error()}
	}
	var out bounded
	if err := parsed.Execute(&out, data); err != nil {
		return result{Fails: "exec", Problem: err.Error()}
	}
	text := strings.ReplaceAll(out.String(), "<no value>", "")
	text = string([]rune(text)) // invalid UTF-8 becomes U+FFFD in every release
	return result{Output: &text}
}

func serve(in io.Reader, out io.Writer) {
	decoder := json.NewDecoder(bufio.NewReader(in))
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for {
		var asked []request
		if err := decoder.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		answers := make([]result, len(asked))
		for i, each := range asked {
			answers[i] = render(each.Template, decode(each.Data))
		}
		if err := encoder.Encode(answers); err != nil {
			log.Fatal(err)
		}
		writer.Flush()
	}
}

func regenerate(from, to string) {
	raw, err := os.ReadFile(from)
	if err != nil {
		log.Fatal(err)
	}
	var given table
	if err := json.Unmarshal(raw, &given); err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for _, group := range given.Cases {
		for _, source := range group.Templates {
			row := golden{group.On, source, render(source, decode(given.Documents[group.On]))}
			if err := encoder.Encode(row); err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}

func main() {
	serving := flag.Bool("serve", false, "answer requests from standard input")
	to := flag.String("to", "golden.jsonl", "where the golden table is written")
	flag.Parse()
	if *serving {
		serve(os.Stdin, os.Stdout)
	} else {
		regenerate("cases.json", *to)
	}
}
