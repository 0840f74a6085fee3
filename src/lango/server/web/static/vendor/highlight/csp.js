/*! `csp` grammar compiled for Highlight.js 11.12.0 */
var hljsGrammar=(()=>{"use strict";return r=>({name:"CSP",case_insensitive:!1,
keywords:{$pattern:"[a-zA-Z][a-zA-Z0-9_-]*",
keyword:["base-uri","child-src","connect-src","default-src","fenced-frame-src","font-src","form-action","frame-ancestors","frame-src","img-src","manifest-src","media-src","object-src","plugin-types","report-to","report-uri","require-trusted-types-for","sandbox","script-src","script-src-attr","script-src-elem","style-src","style-src-attr","style-src-elem","trusted-types","unsafe-hashes","worker-src"]
},contains:[{className:"string",begin:"'",end:"'"},{className:"attribute",
begin:"^Content",end:":",excludeEnd:!0}]})})();export default hljsGrammar;